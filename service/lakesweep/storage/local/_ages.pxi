# What counts as the age of a file; in `_walk` and in `_unlink`.

from libc.stdint cimport int64_t
from posix.stat cimport struct_stat

cdef extern from *:
    """
    #include <sys/stat.h>

    #ifdef __APPLE__
    #define AGE_MTIME st_mtimespec
    #define AGE_CTIME st_ctimespec
    #else
    #define AGE_MTIME st_mtim
    #define AGE_CTIME st_ctim
    #endif

    /* Rounded up: a file may look a millisecond younger than it is, never older. Kept within the years 1 and 9999, since
       some file systems take any number, and one that does not fit must not turn from the future into the past. */
    static int64_t in_ms(struct timespec at) {
        int64_t seconds = at.tv_sec;
        if (seconds >= 253402300799) return 253402300799000;
        if (seconds < -62135596800) return -62135596800000;
        return seconds * 1000 + (at.tv_nsec + 999999) / 1000000;
    }

    /* `mv` and `cp -p` bring the old mtime along; nothing but the kernel sets the ctime. */
    static int64_t age_ms(const struct stat *status, int by_change) {
        int64_t modified = in_ms(status->AGE_MTIME), changed = in_ms(status->AGE_CTIME);
        return by_change && changed > modified ? changed : modified;
    }
    """
    int64_t age_ms(const struct_stat *, int) nogil
