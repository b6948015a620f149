# What a walk has found, in columns.

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

cdef enum:
    MOST_ROWS = 1 << 20  # of one read


cdef bint is_utf8(const unsigned char *text, size_t length) noexcept nogil:
    """What Python decodes as UTF-8: shortest forms only, no surrogates, nothing above U+10FFFF."""
    cdef size_t at = 0, more, until
    cdef unsigned char lead, low, high
    while at < length:
        lead = text[at]
        at += 1
        if lead < 0x80:
            continue
        low, high = 0x80, 0xBF
        if 0xC2 <= lead <= 0xDF:
            more = 1
        elif 0xE0 <= lead <= 0xEF:
            more = 2
            low, high = (0xA0 if lead == 0xE0 else 0x80), (0x9F if lead == 0xED else 0xBF)
        elif 0xF0 <= lead <= 0xF4:
            more = 3
            low, high = (0x90 if lead == 0xF0 else 0x80), (0x8F if lead == 0xF4 else 0xBF)
        else:
            return False
        until = at + more
        if until > length:
            return False
        while at < until:
            if not low <= text[at] <= high:
                return False
            low, high = 0x80, 0xBF
            at += 1
    return True


cdef class Rows:
    """Files that were read: columns in C memory, laid out as Arrow wants them."""

    cdef char *text
    cdef int32_t *ends
    cdef int64_t *sizes
    cdef int64_t *times
    cdef size_t used, room, rows

    def __cinit__(self, size_t limit):
        if not 0 < limit <= MOST_ROWS:
            raise ValueError(f"{limit} rows at once")
        # Memory that no row comes to is never touched, so it costs nothing to ask for enough at once.
        self.ends = <int32_t *>malloc((limit + 1) * sizeof(int32_t))
        self.sizes = <int64_t *>malloc(limit * sizeof(int64_t))
        self.times = <int64_t *>malloc(limit * sizeof(int64_t))
        if self.ends == NULL or self.sizes == NULL or self.times == NULL:
            raise MemoryError
        self.ends[0] = 0

    def __dealloc__(self):
        free(self.text)
        free(self.ends)
        free(self.sizes)
        free(self.times)

    @property
    def count(self):
        """How many there are."""
        return self.rows

    @property
    def buffers(self):
        """Address and size of: offsets and text of the paths, sizes, times in ms. They live as long as this object."""
        return (
            (<size_t>self.ends, (self.rows + 1) * sizeof(int32_t)),
            (<size_t>self.text, self.used),
            (<size_t>self.sizes, self.rows * sizeof(int64_t)),
            (<size_t>self.times, self.rows * sizeof(int64_t)),
        )

    cdef bint _reserve(self, size_t length) noexcept nogil:
        """Room for the text of one more row."""
        cdef size_t room = 2 * self.room + length + 4096
        cdef void *more
        if self.used + length > self.room:
            more = realloc(self.text, room)
            if more == NULL:
                return False
            self.text = <char *>more
            self.room = room
        return True

    cdef void _append(self, const char *text, size_t length) noexcept nogil:
        memcpy(self.text + self.used, text, length)
        self.used += length
