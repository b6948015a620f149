# Directories below an open one, reached without following a link; in `_walk` and in `_unlink`.

from libc cimport errno
from libc.string cimport memcpy
from posix.fcntl cimport AT_FDCWD, F_DUPFD_CLOEXEC, O_CLOEXEC, O_DIRECTORY, O_RDONLY, fcntl, openat
from posix.unistd cimport close

cdef extern from "<fcntl.h>":
    int O_NOFOLLOW

cdef enum:
    LONGEST_NAME = 4096


cdef int refuse_nul(bytes path) except -1:
    """To the system a path ends at its first NUL: what is behind it would be left out without a word."""
    if 0 in path:
        raise ValueError("a path with a NUL in it")
    return 0


cdef int open_directory_at(int parent, const char *name, int flags) noexcept nogil:
    cdef int handle
    while True:
        handle = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags)
        if handle >= 0 or errno.errno != errno.EINTR:
            return handle


cdef int open_below(int root, const char *path, size_t length, size_t *reached) noexcept nogil:
    """A handle on the directory `path` below an open one, reached without a single link, or -1. `reached` is where in
    `path` the segment ends that was tried last. A slash at its beginning means nothing."""
    cdef char name[LONGEST_NAME]
    cdef size_t end, start = 1 if length and path[0] == c"/" else 0
    cdef int code, inner, handle = fcntl(root, F_DUPFD_CLOEXEC, 0)
    while handle >= 0 and start < length:
        end = start
        while end < length and path[end] != c"/":
            end += 1
        reached[0] = end
        inner = -1
        if end - start >= LONGEST_NAME:
            errno.errno = errno.ENAMETOOLONG
        else:
            memcpy(name, path + start, end - start)
            name[end - start] = 0
            inner = open_directory_at(handle, name, O_NOFOLLOW)
        code = errno.errno
        close(handle)
        errno.errno = code
        handle = inner
        start = end + 1
    return handle
