# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Remove names from directories without the interpreter lock.

Every directory on the way is opened without following a link, so nothing is ever removed through one. Only POSIX
calls, and no Python object while the lock is given up.
"""

from libc.stdint cimport INT64_MIN, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp
from posix.fcntl cimport AT_REMOVEDIR, AT_SYMLINK_NOFOLLOW
from posix.stat cimport S_ISREG, fstatat, struct_stat

include "_ages.pxi"
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
ANOTHER_FILE = -3
"""The answer for what was not removed because it was not written when it should have been."""

cdef enum:
    SAME_TIME_MS = 2  # a listing rounds times up to milliseconds


def steady_ns():
    """Nanoseconds by a clock that nobody sets and that goes on while the process or the machine stands still."""
    return steady_now()


cdef struct Removal:
    const char *path  # absolute, without NUL, empty or dot segments
    size_t directory  # length of the path up to its last slash
    int64_t written_ms  # when it has to be written; INT64_MIN if at any time
    size_t reached
    int code


cdef bint is_same(const struct_stat *status, int64_t written_ms, bint by_change) noexcept nogil:
    if written_ms == INT64_MIN:
        return True
    return -SAME_TIME_MS <= age_ms(status, by_change) - written_ms <= SAME_TIME_MS


cdef int remove_name(int parent, Removal *asked, bint directory, bint by_change) noexcept nogil:
    """0, NOT_A_FILE, ANOTHER_FILE or the number of an error."""
    cdef struct_stat status
    cdef const char *name = asked.path + asked.directory + 1
    if directory:
        return errno.errno if unlinkat(parent, name, AT_REMOVEDIR) else 0
    if fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW):
        return errno.errno
    if not is_same(&status, asked.written_ms, by_change):
        return -3
    if not S_ISREG(status.st_mode):
        return -1
    return errno.errno if unlinkat(parent, name, 0) else 0


cdef bint in_same_directory(Removal *one, Removal *other) noexcept nogil:
    return one.directory == other.directory and not memcmp(one.path, other.path, one.directory)


cdef void remove_each(
    Removal *asked, size_t count, bint directories, int64_t until, bint by_change
) noexcept nogil:
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
            now.code = remove_name(parent, now, directories, by_change)
    if parent >= 0:
        close(parent)
    if top >= 0:
        close(top)


def remove(list paths not None, *, bint directories=False, int64_t until=0, list written_ms=None, bint by_change=True):
    """Remove regular files, or with `directories` empty directories, in this order; best if those of one directory are
    neighbours. Paths are absolute bytes without NUL, empty or dot segments. None is begun at or after `until`, a moment
    of `steady_ns`, if there is one. A file whose time, by its change or by its modification alone, is not the one in
    `written_ms` stays; None there means any.

    For each path two numbers: 0, NOT_A_FILE, NOT_TRIED, ANOTHER_FILE or that of an error; and 0, or how much of the
    path had been tried when a directory on the way could not be opened."""
    if written_ms is not None and len(written_ms) != len(paths):
        raise ValueError("not a time for each path")
    # A list of our own: nobody else can take a path out of it while C looks at its text.
    cdef list held = list(paths), times = [None] * len(held) if written_ms is None else list(written_ms)
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
            asked[at].written_ms = INT64_MIN if times[at] is None else times[at]
        with nogil:
            remove_each(asked, count, directories, until, by_change)
        return [(asked[at].code, asked[at].reached) for at in range(count)]
    finally:
        free(asked)
