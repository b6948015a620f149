"""Move local files to the trash and back: a rename on the same file system, never a copy.

No link is followed on the way to either name, and no name that exists is replaced: the system itself refuses that
(RENAME_NOREPLACE), or, where it cannot, the file gets its second name by a hard link before it loses the first."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import NamedTuple

from lakesweep.model.files import AgeBy, Went
from lakesweep.ports.deleter import ANOTHER_OBJECT, TAKEN, Conditions, Deleted, DeleteStatus, Marker, Move, not_sent
from lakesweep.storage.local.deleter import PAGE, UNASKED_NS, Judged, exact_path, failure_kind
from lakesweep.storage.local.system_calls import open_directory, steady_ns
from lakesweep.storage.spec import NothingToClose
from lakesweep.telemetry import requests

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_RENAME_NOREPLACE = 1
_NOT_KNOWN = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP})
"""Errors of a file system or kernel without a rename that refuses to replace."""
_ONLY_OWNER = 0o700
"""Mode of directories in the trash: files from a private directory must not become readable there."""
_HANDLES = 64
"""Directories held open at one time."""

OTHER_FILE_SYSTEM = "the trash is on another file system, and files are renamed, never copied: set orphan_cleanup.trash"


class LocalMover(NothingToClose):
    """Moves files. One thread per call, like the deleter."""

    def __init__(self, age_by: AgeBy = AgeBy.CHANGE) -> None:
        """`age_by` as for the listing that times are compared with."""
        self._age_by = age_by

    async def to_trash(self, moves: Sequence[Move], conditions: Conditions | None = None) -> list[Deleted]:
        """A target that is the same file means that the move was begun before."""
        return await self._move(moves, conditions, _Direction(mode=_ONLY_OWNER, finish=True))

    async def back(self, moves: Sequence[Move], conditions: Conditions | None = None) -> list[Deleted]:
        """Missing directories are created again."""
        return await self._move(moves, conditions, _Direction(mode=0o777, finish=False))

    async def uncover(self, markers: Sequence[Marker], conditions: Conditions | None = None) -> list[Deleted]:  # noqa: ARG002  # the port's
        return [Deleted(path=one.path, status=DeleteStatus.FAILED, why="a disk keeps no versions") for one in markers]

    async def _move(self, moves: Sequence[Move], conditions: Conditions | None, way: _Direction) -> list[Deleted]:
        answers: list[Deleted] = []
        for first in range(0, len(moves), PAGE):
            page = moves[first : first + PAGE]
            kept = await conditions.withheld([move.source for move in page]) if conditions else {}
            going = [move for move in page if move.source not in kept]
            requests.sent("delete")  # as the deleter counts: a rename costs what an unlink does
            ended = conditions.ended if conditions else lambda: None
            judged = Judged(written_ms=conditions.written_ms if conditions else {}, age_by=self._age_by)
            results = iter(await asyncio.to_thread(_move_unless, ended, going, way, judged))
            answers += [kept.get(move.source) or next(results) for move in page]
        return answers


class _Direction(NamedTuple):
    mode: int
    finish: bool


def _move_unless(
    ended: Callable[[], str | None], moves: Sequence[Move], way: _Direction, judged: Judged
) -> list[Deleted]:
    """Checks the lease again after some time has passed, like the deleter."""
    answers: list[Deleted] = []
    until = 0
    with _Directories() as directories:
        for move in moves:
            now = steady_ns()
            if now >= until:
                until = now + UNASKED_NS
                if why := ended():
                    return answers + [not_sent(one.source, why) for one in moves[len(answers) :]]
            answers.append(_one(move, way, directories, judged))
    return answers


def _one(move: Move, way: _Direction, directories: _Directories, judged: Judged) -> Deleted:
    path = move.source
    try:
        source, target = exact_path(move.source), exact_path(move.target)
        if kept := _kept(path, source, directories, judged):
            return kept
    except FileNotFoundError:
        return Deleted(path=path, status=DeleteStatus.ALREADY_GONE)
    except (ValueError, OSError) as exc:
        return _failed(path, exc)
    try:
        (here, name), (there, new_name) = directories.of(source), directories.of(target, make=way.mode)
        moved = _rename(name, here, new_name, there, finish=way.finish)
    except FileExistsError:
        return Deleted(path=path, status=DeleteStatus.SPARED, why=TAKEN)
    except OSError as exc:
        return _failed(path, exc)
    spared = Deleted(path=path, status=DeleteStatus.SPARED, why=ANOTHER_OBJECT)
    return Deleted(path=path, status=DeleteStatus.DELETED, went=Went.TRASH) if moved else spared


def _kept(path: str, source: bytes, directories: _Directories, judged: Judged) -> Deleted | None:
    here, name = directories.of(source)
    if not stat.S_ISREG(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode):
        return Deleted(path=path, status=DeleteStatus.FAILED, why="not a regular file")
    if not judged.means(path, source):
        return Deleted(path=path, status=DeleteStatus.SPARED, why=ANOTHER_OBJECT)
    return None


def _failed(path: str, exc: ValueError | OSError) -> Deleted:
    code = exc.errno or 0 if isinstance(exc, OSError) else 0
    if code == errno.EXDEV:
        why = OTHER_FILE_SYSTEM
    elif code in (errno.ELOOP, errno.ENOTDIR):
        why = "a directory on the way is a link or not a directory; nothing is moved through it"
    else:
        why = os.strerror(code) if code else str(exc)
    return Deleted(path=path, status=DeleteStatus.FAILED, why=why, kind=failure_kind(code))


def _rename(name: bytes, here: int, new_name: bytes, there: int, *, finish: bool) -> bool:
    """FileExistsError if the new name is taken, unless it is this same file and the move may be finished. False if the
    old name belongs to another file by now: that file stays."""
    code = _rename_noreplace(here, name, there, new_name)
    if code == 0:
        return True
    if code not in _NOT_KNOWN and code != errno.EEXIST:
        raise OSError(code, os.strerror(code))
    try:
        os.link(name, new_name, src_dir_fd=here, dst_dir_fd=there, follow_symlinks=False)
    except FileExistsError:
        if not (finish and _same(name, here, new_name, there)):
            raise
    if not _same(name, here, new_name, there):
        return False
    os.unlink(name, dir_fd=here)
    return True


def _same(name: bytes, here: int, new_name: bytes, there: int) -> bool:
    one = os.stat(name, dir_fd=here, follow_symlinks=False)
    other = os.stat(new_name, dir_fd=there, follow_symlinks=False)
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


_libc = ctypes.CDLL(None, use_errno=True)


def _rename_noreplace(here: int, name: bytes, there: int, new_name: bytes) -> int:
    """0 or an errno."""
    rename = getattr(_libc, "renameat2", None)
    if rename is None:
        return errno.ENOSYS
    return ctypes.get_errno() if rename(here, name, there, new_name, _RENAME_NOREPLACE) else 0


class _Directories(AbstractContextManager["_Directories"]):
    """Handles of directories, each reached from the top without following a link. The two that were requested last are
    open: those of one move."""

    def __init__(self) -> None:
        self._open: dict[bytes, int] = {}

    def __exit__(self, *_: object) -> None:
        with ExitStack() as closing:
            for handle in self._open.values():
                closing.callback(os.close, handle)
            self._open = {}

    def of(self, path: bytes, *, make: int | None = None) -> tuple[int, bytes]:
        """The directory of a file, created with this mode if necessary, and the file's name in it."""
        directory, _, name = path.rpartition(b"/")
        handle = self._open.pop(directory, None)
        if handle is None:
            if len(self._open) >= _HANDLES:
                os.close(self._open.pop(next(iter(self._open))))
            handle = _opened(directory) if make is None else _made(directory, make)
        self._open[directory] = handle  # as the youngest: the other directory of this move is not closed for it
        return handle, name


def _opened(directory: bytes) -> int:
    return open_directory(b"/", directory.strip(b"/"))


def _made(directory: bytes, mode: int) -> int:
    with suppress(FileNotFoundError):
        return _opened(directory)
    above, _, name = directory.rpartition(b"/")
    parent = _made(above, mode) if above else os.open("/", _DIRECTORY)
    try:
        with suppress(FileExistsError):
            os.mkdir(name, mode, dir_fd=parent)
        return os.open(name, _DIRECTORY, dir_fd=parent)
    finally:
        os.close(parent)
