# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Read a tree of directories without the interpreter lock.

Several threads read one tree: each takes a directory from a shared stack, reads it, and puts what is below it there.
Only POSIX calls, and no Python object while the lock is given up.

Below the root every directory is reached from its parent's handle without following a link, so nothing outside is
ever read. A tree never looks complete when it is not: what cannot be read raises, in every thread, and only what has
gone in the meantime is left out.
"""

import os

cimport cython
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport strlen
from posix.fcntl cimport AT_SYMLINK_NOFOLLOW
from posix.stat cimport S_ISDIR, S_ISREG, fstatat, struct_stat

include "_ages.pxi"
include "_directories.pxi"
include "_rows.pxi"

cdef extern from *:
    """
    #include <dirent.h>
    #include <pthread.h>

    static int is_set(int *flag) { return __atomic_load_n(flag, __ATOMIC_RELAXED); }
    static void set_flag(int *flag) { __atomic_store_n(flag, 1, __ATOMIC_RELAXED); }
    static void count_one(Py_ssize_t *total) { __atomic_add_fetch(total, 1, __ATOMIC_RELAXED); }
    static Py_ssize_t take_all(Py_ssize_t *total) { return __atomic_exchange_n(total, 0, __ATOMIC_RELAXED); }
    """
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *, void *) nogil
    int pthread_mutex_destroy(pthread_mutex_t *) nogil
    int pthread_mutex_lock(pthread_mutex_t *) nogil
    int pthread_mutex_unlock(pthread_mutex_t *) nogil
    int pthread_cond_init(pthread_cond_t *, void *) nogil
    int pthread_cond_destroy(pthread_cond_t *) nogil
    int pthread_cond_wait(pthread_cond_t *, pthread_mutex_t *) nogil
    int pthread_cond_signal(pthread_cond_t *) nogil
    int pthread_cond_broadcast(pthread_cond_t *) nogil
    ctypedef struct DIR:
        pass
    struct dirent:
        char *d_name
        unsigned char d_type
    DIR *fdopendir(int) nogil
    dirent *readdir(DIR *) nogil
    int closedir(DIR *) nogil
    int dirfd(DIR *) nogil
    int DT_DIR, DT_REG, DT_UNKNOWN
    int is_set(int *) nogil
    void set_flag(int *) nogil
    void count_one(Py_ssize_t *) nogil
    Py_ssize_t take_all(Py_ssize_t *) nogil

cdef enum:
    TEXT_PER_READ = 16 << 20  # bytes of paths after which a read ends early: memory is bounded however long they are


cdef bint is_gone(int code) noexcept nogil:
    """Vanished, or replaced by a file or a link: nothing of ours is there any more."""
    return code == errno.ENOENT or code == errno.ENOTDIR or code == errno.ELOOP


cdef class Tree:
    """What is below `root`, or only in its directory `below`, which may not be reached through a link; the root may be
    one. Unless `deep`, only the files right there. Paths are `prefix`, then the place below the root. A file's time is
    the younger of its mtime and ctime, or its mtime alone unless `by_change`."""

    cdef pthread_mutex_t lock
    cdef pthread_cond_t changed
    cdef bytes root, prefix
    cdef const char *root_text
    cdef const char *prefix_text
    cdef size_t prefix_length
    cdef bint deep, by_change, prefix_is_text
    cdef int handle, stopped, failure, busy
    cdef char *failed_at
    cdef char **stack
    cdef size_t stacked, room
    cdef Py_ssize_t skipped

    def __cinit__(self, bytes root not None, bytes below not None, bytes prefix not None, *, bint deep, bint by_change):
        pthread_mutex_init(&self.lock, NULL)
        pthread_cond_init(&self.changed, NULL)
        self.handle = -1
        refuse_nul(root)
        refuse_nul(below)
        self.root, self.prefix, self.deep, self.by_change = root, prefix, deep, by_change
        self.root_text, self.prefix_text, self.prefix_length = root, prefix, len(prefix)
        self.prefix_is_text = is_utf8(<const unsigned char *>self.prefix_text, self.prefix_length)
        if not self._push(b"", 0, below, len(below)):
            raise MemoryError

    def __dealloc__(self):
        self._give_back()
        free(self.failed_at)
        while self.stacked:
            self.stacked -= 1
            free(self.stack[self.stacked])
        free(self.stack)
        pthread_cond_destroy(&self.changed)
        pthread_mutex_destroy(&self.lock)

    def stop(self):
        """Let every reader end soon."""
        self._stop()

    cdef void _stop(self) noexcept nogil:
        pthread_mutex_lock(&self.lock)
        set_flag(&self.stopped)
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)

    def close(self):
        """Give the root back. No reader may be at work any more."""
        self._give_back()

    cdef void _give_back(self) noexcept nogil:
        if self.handle >= 0:
            close(self.handle)
            self.handle = -1

    @property
    def waiting(self):
        """How many directories nobody has taken yet."""
        pthread_mutex_lock(&self.lock)
        count = self.stacked
        pthread_mutex_unlock(&self.lock)
        return count

    def take_skipped(self):
        """How many files had names that are not UTF-8, each counted in one answer only."""
        return take_all(&self.skipped)

    cdef bint _push(self, const char *parent, size_t parent_length, const char *name, size_t length) noexcept nogil:
        cdef size_t slash = 1 if parent_length else 0
        cdef char *path = <char *>malloc(parent_length + slash + length + 1)
        cdef void *more
        if path == NULL:
            return False
        memcpy(path, parent, parent_length)
        if slash:
            path[parent_length] = c"/"
        memcpy(path + parent_length + slash, name, length)
        path[parent_length + slash + length] = 0
        pthread_mutex_lock(&self.lock)
        if self.stacked == self.room:
            more = realloc(self.stack, (2 * self.room + 64) * sizeof(char *))
            if more == NULL:
                pthread_mutex_unlock(&self.lock)
                free(path)
                return False
            self.stack = <char **>more
            self.room = 2 * self.room + 64
        self.stack[self.stacked] = path
        self.stacked += 1
        pthread_cond_signal(&self.changed)
        pthread_mutex_unlock(&self.lock)
        return True

    cdef char *_take(self) noexcept nogil:
        """A directory to read, or NULL: the tree is read, or there is no use in going on. Waits as long as another
        reader may still find directories."""
        cdef char *path = NULL
        pthread_mutex_lock(&self.lock)
        while not (self.stopped or self.failure):
            if self.stacked:
                self.stacked -= 1
                path = self.stack[self.stacked]
                self.busy += 1
                break
            if not self.busy:
                break
            pthread_cond_wait(&self.changed, &self.lock)
        pthread_mutex_unlock(&self.lock)
        return path

    cdef void _done(self, char *path, int failure) noexcept nogil:
        """A directory was read, or has failed."""
        pthread_mutex_lock(&self.lock)
        self.busy -= 1
        if failure and not self.failure:
            self.failure = failure
            self.failed_at, path = path, NULL
        if failure or not self.busy:
            pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)
        free(path)

    cdef int _check(self) except -1:
        """Raise what has failed, whoever met it. Number and place are set together, so they are read together."""
        pthread_mutex_lock(&self.lock)
        cdef int failure = self.failure
        cdef const char *place = self.failed_at
        pthread_mutex_unlock(&self.lock)
        if failure:
            raise OSError(failure, os.strerror(failure), os.fsdecode(<bytes>place))
        return 0


@cython.no_gc_clear  # leaves its tree when it goes, so the tree must still be there then
cdef class Reader:
    """One thread's share of a tree. Closed by whoever made it, when its thread is not reading."""

    cdef Tree tree
    cdef DIR *entries
    cdef char *path
    cdef size_t length
    cdef bint is_text

    def __cinit__(self, Tree tree not None):
        self.tree = tree

    def __dealloc__(self):
        self._give_up()

    def close(self):
        """Leave the directory that is being read, if any: then the tree is never complete, so all readers stop."""
        self._give_up()

    cdef void _give_up(self) noexcept nogil:
        if self.path != NULL:
            self.tree._stop()
            self._leave(0)

    def read(self, size_t limit):
        """Up to so many files, or None at the end of the tree and after `stop`. An OSError names the directory in
        which it happened, as a place below the root."""
        cdef Rows rows = Rows(limit)
        with nogil:
            while rows.rows < limit and rows.used < TEXT_PER_READ:
                if self.path == NULL and not self._enter():
                    break
                if self.entries != NULL and not self._some(rows, limit):
                    break
        self.tree._check()
        return rows if rows.rows and not is_set(&self.tree.stopped) else None

    cdef bint _enter(self) noexcept nogil:
        """Take and open a directory. One that has gone is done with, and not open then."""
        cdef size_t reached
        cdef int handle
        self.path = self.tree._take()
        if self.path == NULL:
            return False
        self.length = strlen(self.path)
        self.is_text = self.tree.prefix_is_text and is_utf8(<unsigned char *>self.path, self.length)
        if self.tree.handle < 0:
            # The first directory of all: the others are only found, and so opened, after it.
            self.tree.handle = open_directory_at(AT_FDCWD, self.tree.root_text, 0)
        handle = -1
        if self.tree.handle >= 0:
            handle = open_below(self.tree.handle, self.path, self.length, &reached)
        if handle >= 0:
            self.entries = fdopendir(handle)
            if self.entries == NULL:
                self._leave(errno.errno)
                close(handle)
        else:
            self._leave(0 if is_gone(errno.errno) else errno.errno)
        return True

    cdef void _leave(self, int failure) noexcept nogil:
        if self.entries != NULL:
            closedir(self.entries)
            self.entries = NULL
        self.tree._done(self.path, failure)
        self.path = NULL

    cdef bint _some(self, Rows rows, size_t limit) noexcept nogil:
        """Entries of the open directory, until it ends or enough rows are there. False if it is no use going on."""
        cdef dirent *entry
        cdef struct_stat status
        cdef int code, handle = dirfd(self.entries)
        while rows.rows < limit and rows.used < TEXT_PER_READ:
            if is_set(&self.tree.stopped):
                return False
            errno.errno = 0
            entry = readdir(self.entries)
            if entry == NULL:
                code = errno.errno
                self._leave(code)
                return code == 0
            code = 0
            if entry.d_type == DT_DIR:
                code = self._found(entry.d_name)
            elif entry.d_type == DT_REG or entry.d_type == DT_UNKNOWN:
                if fstatat(handle, entry.d_name, &status, AT_SYMLINK_NOFOLLOW):
                    code = 0 if errno.errno == errno.ENOENT else errno.errno
                elif S_ISREG(status.st_mode):
                    code = self._add(rows, entry.d_name, &status)
                elif S_ISDIR(status.st_mode):
                    code = self._found(entry.d_name)
            # Links, sockets and devices are not files of a table: not listed, hence never deleted.
            if code:
                self._leave(code)
                return False
        return True

    cdef int _found(self, const char *name) noexcept nogil:
        """A directory inside the one that is open."""
        if not self.tree.deep or (name[0] == c"." and (name[1] == 0 or (name[1] == c"." and name[2] == 0))):
            return 0
        return 0 if self.tree._push(self.path, self.length, name, strlen(name)) else errno.ENOMEM

    cdef int _add(self, Rows rows, const char *name, struct_stat *status) noexcept nogil:
        cdef size_t length = strlen(name)
        if not (self.is_text and is_utf8(<const unsigned char *>name, length)):
            # No table format writes such a name and no address can spell it, so the file can be neither referenced
            # nor deleted: it is counted and stays.
            count_one(&self.tree.skipped)
            return 0
        if not rows._reserve(self.tree.prefix_length + self.length + 1 + length):
            return errno.ENOMEM
        rows._append(self.tree.prefix_text, self.tree.prefix_length)
        if self.length:
            rows._append(self.path, self.length)
            rows._append(b"/", 1)
        rows._append(name, length)
        rows.sizes[rows.rows] = status.st_size
        rows.times[rows.rows] = age_ms(status, self.tree.by_change)
        rows.rows += 1
        rows.ends[rows.rows] = <int32_t>rows.used
        return 0


def open_directory(bytes root not None, bytes below not None):
    """A handle on a directory below a root; only the root may be a link."""
    refuse_nul(root)
    refuse_nul(below)
    cdef const char *root_text = root
    cdef const char *below_text = below
    cdef size_t reached, length = len(below)
    cdef int handle, inner = -1, code
    with nogil:
        handle = open_directory_at(AT_FDCWD, root_text, 0)
        if handle >= 0:
            inner = open_below(handle, below_text, length, &reached)
        code = errno.errno
        if handle >= 0:
            close(handle)
    if inner < 0:
        raise OSError(code, os.strerror(code))
    return inner
