# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Remove names from directories without the interpreter lock.

Every directory on the way is opened without following a link, so nothing is ever removed through one. Only POSIX
calls, and no Python object while the lock is given up.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp
from posix.fcntl cimport AT_REMOVEDIR, AT_SYMLINK_NOFOLLOW
from posix.stat cimport S_ISREG, fstatat, struct_stat

include "_directories.pxi"

cdef extern from "<unistd.h>":
    int unlinkat(int, const char *, int) nogil

cdef extern from *:
    """
    #include <stdint.h>
    #include <time.h>
    #ifdef CLOCK_BOOTTIME
    #define STEADY_CLOCK CLOCK_BOOTTIME
    #else
    #define STEADY_CLOCK CLOCK_MONOTONIC
    #endif
    static int64_t steady_now(void) {
        struct timespec now;
        return clock_gettime(STEADY_CLOCK, &now) ? INT64_MAX : (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    }
    """
    int64_t steady_now() nogil

NOT_A_FILE = -1
"""The answer of `remove` for what is no regular file; other answers are 0 or the number of an error."""
NOT_TRIED = -2
"""The answer for what was not removed because the time for it was over."""


def steady_ns():
    """Nanoseconds by a clock that nobody sets and that goes on while the process or the machine stands still."""
    return steady_now()


cdef int remove_name(int parent, const char *name, bint directory) noexcept nogil:
    """0, NOT_A_FILE or the number of an error."""
    cdef struct_stat status
    if directory:
        return errno.errno if unlinkat(parent, name, AT_REMOVEDIR) else 0
    if fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW):
        return errno.errno
    if not S_ISREG(status.st_mode):
        return -1
    return errno.errno if unlinkat(parent, name, 0) else 0


cdef struct Removal:
    const char *path  # absolute, without NUL, empty or dot segments
    size_t directory  # length of the path up to its last slash
    size_t reached
    int code


cdef bint in_same_directory(Removal *one, Removal *other) noexcept nogil:
    return one.directory == other.directory and not memcmp(one.path, other.path, one.directory)


cdef void remove_each(Removal *asked, size_t count, bint directories, int64_t until) noexcept nogil:
    """Neighbours in one directory share its handle. That is as safe as one handle each: it was reached without a
    link, so it is the directory that stood at this path a moment ago, the one whose files are asked for. If a link
    takes its place meanwhile, or another directory, the handle does not change: nothing there is touched."""
    cdef size_t at
    cdef Removal *now
    cdef int parent = -1, top = open_directory_at(AT_FDCWD, b"/", 0)
    cdef int code = errno.errno
    for at in range(count):
        now = &asked[at]
        if top < 0:
            now.code = code
            continue
        if until and steady_now() >= until:  # asked for each: the process may have stood still since the last
            for at in range(at, count):
                asked[at].code = -2
            break
        if at and in_same_directory(now, now - 1):
            if parent < 0:
                now.code, now.reached = (now - 1).code, (now - 1).reached
        else:
            if parent >= 0:
                close(parent)
            parent = open_below(top, now.path, now.directory, &now.reached)
            if parent < 0:
                now.code = errno.errno
        if parent >= 0:
            now.reached = 0
            now.code = remove_name(parent, now.path + now.directory + 1, directories)
    if parent >= 0:
        close(parent)
    if top >= 0:
        close(top)


def remove(list paths not None, *, bint directories=False, int64_t until=0):
    """Remove regular files, or with `directories` empty directories, in this order; best if those of one directory are
    neighbours. Paths are absolute bytes without NUL, empty or dot segments. None is begun at or after `until`, a moment
    of `steady_ns`, if there is one.

    For each path two numbers: 0, NOT_A_FILE, NOT_TRIED or that of an error; and 0, or how much of the path had been tried when a
    directory on the way could not be opened."""
    # A list of our own: nobody else can take a path out of it while C looks at its text.
    cdef list held = list(paths)
    cdef size_t at, count = len(held)
    cdef Removal *asked = <Removal *>calloc(count + 1, sizeof(Removal))
    cdef bytes path
    if asked == NULL:
        raise MemoryError
    try:
        for at in range(count):
            path = held[at]
            refuse_nul(path)
            asked[at].path = path
            asked[at].directory = path.rindex(b"/")
        with nogil:
            remove_each(asked, count, directories, until)
        return [(asked[at].code, asked[at].reached) for at in range(count)]
    finally:
        free(asked)
