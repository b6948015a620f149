# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The inner loops over Avro bytes: stepping over blocks, and picking columns out of rows without the GIL.

Whatever the bytes are, nothing outside of them is read, and nothing is allocated by a number that they claim: buffers
grow with the values that were really there. Every number, length, index and end is checked. At the first thing out of
order the whole read gives up, and the caller lets the reference reader judge; no row is ever guessed or left out.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AsString, PyBytes_Size
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset


class ContainerError(ValueError):
    """The bytes are not one whole, well-formed Avro container."""


cpdef enum Op:
    """What a program is made of, and what follows each in its code."""
    SKIP_NUMBER = 0
    SKIP_FIXED = 1  # how many bytes
    SKIP_BYTES = 2
    SKIP_BOOLEAN = 3
    SKIP_ENUM = 4  # how many symbols
    UNION = 5  # how many branches, then where the code of each begins
    JUMP = 6  # where to
    LOOP = 7  # where the code of one item ends; it follows
    TAKE = 8  # into which column
    TAKE_NULL = 9  # into which column
    TAKE_LIST = 10  # into which column, where the code of one item ends; it follows


cpdef enum Kind:
    """What a column holds."""
    INT = 0
    LONG = 1
    BYTES = 2
    LIST = 3  # of what the column behind it holds


cdef enum:
    SYNC_BYTES = 16
    NUMBER_BYTES = 10  # of a zig-zag varint, at most
    FIRST_BYTES = 128  # of a buffer, which doubles whenever it is full


cdef struct Space:
    uint8_t *data
    size_t size
    size_t capacity


cdef struct Column:
    int kind
    int64_t length
    int64_t nulls
    int64_t most  # that a number of 32 bits may be: a value, or where one ends
    Space valid  # a bit for each value
    Space fixed  # numbers, or where each value ends in `bytes` or in the column of items
    Space bytes


cdef bint _grow(Space *space, size_t more) noexcept nogil:
    """Room for so many bytes more. False when there is no memory."""
    cdef size_t capacity = space.capacity if space.capacity else FIRST_BYTES
    cdef void *data
    while capacity - space.size < more:
        if capacity > <size_t>INT64_MAX // 2:
            return False
        capacity *= 2
    data = realloc(space.data, capacity)
    if data == NULL:
        return False
    space.data = <uint8_t *>data
    space.capacity = capacity
    return True


cdef inline bint _append(Space *space, const void *data, size_t size) noexcept nogil:
    if size == 0:  # there may be no buffer yet
        return True
    if space.capacity - space.size < size and not _grow(space, size):
        return False
    memcpy(space.data + space.size, data, size)
    space.size += size
    return True


cdef inline bint _append_number(Column *column, int64_t number, bint is_valid) noexcept nogil:
    """One value more: itself, or where it ends."""
    cdef size_t index = <size_t>column.length >> 3
    cdef int32_t narrow = <int32_t>number
    if index >= column.valid.size:
        if index >= column.valid.capacity and not _grow(&column.valid, 1):
            return False
        column.valid.data[index] = 0
        column.valid.size = index + 1
    if is_valid:
        column.valid.data[index] |= <uint8_t>(1 << (column.length & 7))
    else:
        column.nulls += 1
    column.length += 1
    if column.kind == Kind.LONG:
        return _append(&column.fixed, &number, sizeof(number))
    if number < INT32_MIN or number > column.most:
        return False
    return _append(&column.fixed, &narrow, sizeof(narrow))


cdef struct Cursor:
    const uint8_t *at
    const uint8_t *end


cdef inline bint _number(Cursor *cursor, int64_t *value) noexcept nogil:
    """A zig-zag varint of at most 64 bits. Most have one byte."""
    if cursor.at < cursor.end and cursor.at[0] < 0x80:
        value[0] = (cursor.at[0] >> 1) ^ -<int64_t>(cursor.at[0] & 1)
        cursor.at += 1
        return True
    return _long_number(cursor, value)


cdef bint _long_number(Cursor *cursor, int64_t *value) noexcept nogil:
    cdef uint64_t found = 0
    cdef uint64_t byte
    cdef int shift = 0
    while shift < 7 * NUMBER_BYTES:
        if cursor.at >= cursor.end:
            return False
        byte = cursor.at[0]
        cursor.at += 1
        if shift == 63 and byte > 1:
            return False
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = <int64_t>(found >> 1) ^ -<int64_t>(found & 1)
            return True
        shift += 7
    return False


cdef inline bint _length(Cursor *cursor, int64_t *value) noexcept nogil:
    """A number of bytes, all of which are there."""
    return _number(cursor, value) and 0 <= value[0] <= cursor.end - cursor.at


cdef inline bint _take(Column *column, Cursor *cursor) noexcept nogil:
    cdef int64_t number
    if column.kind != Kind.BYTES:
        return _number(cursor, &number) and _append_number(column, number, True)
    if not _length(cursor, &number) or not _append(&column.bytes, cursor.at, <size_t>number):
        return False
    cursor.at += number
    return _append_number(column, <int64_t>column.bytes.size, True)


cdef inline bint _take_null(Column *column) noexcept nogil:
    """A null ends where the value before it does."""
    if column.kind == Kind.BYTES:
        return _append_number(column, <int64_t>column.bytes.size, False)
    return _append_number(column, (column + 1).length if column.kind == Kind.LIST else 0, False)


cdef bint _skip_pairs(bint has_bytes, int64_t count, Cursor *given) noexcept nogil:
    """Items that are two numbers, or a number and bytes. The statistics of a manifest are most of it, and are these."""
    cdef Cursor cursor = given[0]
    cdef int64_t index, number
    for index in range(count):
        if not _number(&cursor, &number):
            return False
        if not has_bytes:
            if not _number(&cursor, &number):
                return False
        elif not _length(&cursor, &number):
            return False
        else:
            cursor.at += number
    given[0] = cursor
    return True


cdef bint _items(const int *code, int begin, int end, Cursor *cursor, Column *columns) noexcept nogil:
    """The blocks of an array or of a map, up to the one that is empty."""
    cdef int64_t count, size, index
    cdef const uint8_t *finish
    while True:
        if not _number(cursor, &count):
            return False
        if count == 0:
            return True
        finish = NULL
        if count < 0:
            if count == INT64_MIN or not _length(cursor, &size):
                return False
            count = -count
            finish = cursor.at + size
        # An item takes one byte at least, so that no count keeps us here longer than there are bytes.
        if end - begin == 2 and code[begin] == Op.SKIP_NUMBER and code[begin + 1] in (Op.SKIP_NUMBER, Op.SKIP_BYTES):
            if not _skip_pairs(code[begin + 1] == Op.SKIP_BYTES, count, cursor):
                return False
        else:
            for index in range(count):
                if not _run(code, begin, end, cursor, columns):
                    return False
        if finish != NULL and cursor.at != finish:
            return False


cdef bint _run(const int *code, int begin, int end, Cursor *cursor, Column *columns) noexcept nogil:
    """Read one row, or one item, by the program. False at the first thing that is out of order."""
    cdef int at = begin
    cdef int64_t number
    while at < end:
        if code[at] == Op.SKIP_NUMBER:
            if not _number(cursor, &number):
                return False
            at += 1
        elif code[at] == Op.SKIP_BYTES:
            if not _length(cursor, &number):
                return False
            cursor.at += number
            at += 1
        elif code[at] == Op.UNION:
            if not _number(cursor, &number) or not 0 <= number < code[at + 1]:
                return False
            at = code[at + 2 + number]
        elif code[at] == Op.JUMP:
            at = code[at + 1]
        elif code[at] == Op.LOOP:
            if not _items(code, at + 2, code[at + 1], cursor, columns):
                return False
            at = code[at + 1]
        elif code[at] == Op.TAKE:
            if not _take(&columns[code[at + 1]], cursor):
                return False
            at += 2
        elif code[at] == Op.TAKE_NULL:
            if not _take_null(&columns[code[at + 1]]):
                return False
            at += 2
        elif code[at] == Op.TAKE_LIST:
            if not _items(code, at + 3, code[at + 2], cursor, columns):
                return False
            if not _append_number(&columns[code[at + 1]], columns[code[at + 1] + 1].length, True):
                return False
            at = code[at + 2]
        elif code[at] == Op.SKIP_FIXED:
            if code[at + 1] > cursor.end - cursor.at:
                return False
            cursor.at += code[at + 1]
            at += 2
        elif code[at] == Op.SKIP_ENUM:
            if not _number(cursor, &number) or not 0 <= number < code[at + 1]:
                return False
            at += 2
        elif code[at] == Op.SKIP_BOOLEAN:
            if cursor.at >= cursor.end or cursor.at[0] > 1:
                return False
            cursor.at += 1
            at += 1
        else:
            return False
    return True


cdef struct Part:
    Cursor cursor
    int64_t rows


cdef bint _run_all(const int *code, int size, Part *parts, Py_ssize_t count, Column *columns) noexcept nogil:
    """Whether each block holds exactly so many rows, in order, and nothing else."""
    cdef Py_ssize_t index
    cdef int64_t row
    for index in range(count):
        # A row takes one byte at least, so that no number of rows keeps us here longer than there are bytes.
        for row in range(parts[index].rows):
            if not _run(code, 0, size, &parts[index].cursor, columns):
                return False
        if parts[index].cursor.at != parts[index].cursor.end:
            return False
    return True


cdef class Memory:
    """A buffer that Arrow may hold on to."""

    cdef Space space

    def __dealloc__(self):
        free(self.space.data)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.space.data, <Py_ssize_t>self.space.size, 1, flags)


cdef Memory _memory(Space *space):
    """What a space holds, without the room that was left. The space is empty afterwards."""
    cdef Memory memory = Memory.__new__(Memory)
    cdef void *data
    memory.space = space[0]
    memset(space, 0, sizeof(Space))
    data = realloc(memory.space.data, max(memory.space.size, <size_t>1))
    if data == NULL:
        raise MemoryError
    memory.space.data = <uint8_t *>data
    return memory


cdef int _point(Part *part, bytes data, int64_t rows) except -1:
    if data is None:
        raise TypeError("a block is bytes")
    part.cursor.at = <const uint8_t *>PyBytes_AsString(data)
    part.cursor.end = part.cursor.at + PyBytes_Size(data)
    part.rows = rows
    return 0


cdef tuple _handed_over(Column *column):
    buffers = [_memory(&column.valid) if column.nulls else None, _memory(&column.fixed)]
    if column.kind == Kind.BYTES:
        buffers.append(_memory(&column.bytes))
    return column.length, column.nulls, buffers


cdef class Reader:
    """Picks columns out of rows by a program, which must be sound: it is our compiler's, and never a file's."""

    cdef const int[::1] code
    cdef Column *columns
    cdef int width
    cdef bint is_usable

    def __cinit__(self, const int[::1] code not None, bytes kinds not None, int64_t longest=INT32_MAX):
        """`longest` is how many bytes or items a column may have: Arrow's offsets have 32 bits."""
        cdef int32_t zero = 0
        cdef int index
        self.code = code
        self.columns = <Column *>calloc(max(len(kinds), 1), sizeof(Column))
        if self.columns == NULL:
            raise MemoryError
        self.width = <int>len(kinds)
        for index in range(self.width):
            self.columns[index].kind = kinds[index]
            self.columns[index].most = INT32_MAX if kinds[index] == Kind.INT else longest
            # The first value begins where nothing has ended yet.
            if kinds[index] >= Kind.BYTES and not _append(&self.columns[index].fixed, &zero, sizeof(zero)):
                raise MemoryError
        self.is_usable = True

    def __dealloc__(self):
        cdef int index
        for index in range(self.width):
            free(self.columns[index].valid.data)
            free(self.columns[index].fixed.data)
            free(self.columns[index].bytes.data)
        free(self.columns)

    def read(self, list blocks not None, list rows not None):
        """Read on, through uncompressed blocks, without the GIL. Whether each holds exactly so many rows, in order,
        and nothing else; if one does not, nothing that was read is of use."""
        cdef Py_ssize_t index, count = len(blocks)
        cdef Part *parts
        if not self.is_usable or count != len(rows):
            raise ValueError("there is nothing to read into, or not a number of rows for each block")
        parts = <Part *>calloc(max(count, 1), sizeof(Part))
        if parts == NULL:
            raise MemoryError
        self.is_usable = False  # by another thread in the meantime, or after an error
        try:
            for index in range(count):
                _point(&parts[index], blocks[index], rows[index])
            with nogil:
                self.is_usable = _run_all(&self.code[0], <int>self.code.shape[0], parts, count, self.columns)
            return self.is_usable
        finally:
            free(parts)

    def finish(self):
        """Each column's length, nulls and buffers as Arrow has them. Nothing is left to read into."""
        if not self.is_usable:
            raise ValueError("there is nothing to hand over")
        self.is_usable = False
        return [_handed_over(&self.columns[index]) for index in range(self.width)]


cdef int64_t _checked_number(Cursor *cursor) except? -1:
    cdef const uint8_t *begin = cursor.at
    cdef int64_t value
    if not _number(cursor, &value):
        if cursor.at - begin < NUMBER_BYTES:
            raise ContainerError("cut off in the middle of a number")
        raise ContainerError("a number is too long")
    return value


cdef class Block:
    """One data block: how many rows, and where its compressed bytes are."""

    cdef readonly int64_t rows
    cdef readonly Py_ssize_t start
    cdef readonly Py_ssize_t end


def read_long(bytes data not None, Py_ssize_t position):
    """A zig-zag varint, and where it ends."""
    cdef const uint8_t *begin = <const uint8_t *>PyBytes_AsString(data)
    cdef Py_ssize_t size = PyBytes_Size(data)
    cdef Cursor cursor
    cursor.at, cursor.end = begin + min(max(position, 0), size), begin + size
    value = _checked_number(&cursor)
    return value, cursor.at - begin


def step(bytes data not None, Py_ssize_t position, bytes sync not None):
    """Every block from a position to the end of the data; ContainerError unless all of them are in order."""
    cdef const uint8_t *begin = <const uint8_t *>PyBytes_AsString(data)
    cdef const char *marker = PyBytes_AsString(sync)
    cdef Cursor cursor
    cdef Block block
    cdef int64_t rows, size
    cdef list found = []
    if PyBytes_Size(sync) != SYNC_BYTES or not 0 <= position <= PyBytes_Size(data):
        raise ContainerError("the header is cut off")
    cursor.at, cursor.end = begin + position, begin + PyBytes_Size(data)
    while cursor.at < cursor.end:
        rows = _checked_number(&cursor)
        size = _checked_number(&cursor)
        if (
            rows < 0
            or not 0 <= size <= cursor.end - cursor.at - SYNC_BYTES
            or memcmp(cursor.at + size, marker, SYNC_BYTES) != 0
        ):
            raise ContainerError(f"the block at byte {cursor.at - begin} is cut off or damaged")
        block = Block.__new__(Block)
        block.rows, block.start, block.end = rows, cursor.at - begin, cursor.at - begin + size
        found.append(block)
        cursor.at += size + SYNC_BYTES
    return found
