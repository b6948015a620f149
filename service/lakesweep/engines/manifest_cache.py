"""A cache on disk of the references of immutable sources, so that a steady cycle reads only new sources.

There are three kinds of files. A pack has the fingerprints of all sources of a table; most cycles need no more (see
`manifest_fingerprints`), and it is fast to read. The references themselves are kept only for sources whose fingerprints
were not enough, one file for each source. Lists of sources are kept as they are.

The cache is never trusted: a file counts only if it is signed with the installation's key, carries exactly the
requested name, was decoded by the same code, and has at least as many references as metadata records for the source.
Any other file is removed, and its source is read from storage again. The cache is never required either: without it the
plan is the same. Several processes may share one directory, which is closed to other users. Files appear atomically,
and the last writer wins.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import io
import os
import stat
import struct
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import fastavro
import pyarrow as pa
import structlog
from pyarrow import ipc

import lakesweep
from lakesweep import __version__
from lakesweep.ports.references import ELSEWHERE, REFERENCE_SCHEMA, TOLERATED, ReferenceSource

_log = structlog.get_logger(__name__)

_MAGIC = b"LSDIGST4"
_SIGNATURE_BYTES = 32
_ENTRY_LENGTH = struct.Struct("<Q")
_KEY_LENGTH = struct.Struct("<I")
_SUFFIX = ".refs"

_REFRESH_SECONDS = 3600.0
"""How precisely the time of last use is kept: a hit updates it at most this often per entry."""
_ABANDONED_SECONDS = 3600.0
"""The writer of an incomplete file older than this is gone."""
_TRIM_EVERY = 0.05
"""Share of the limit that may be written between two checks of the total size."""
_TRIM_TO = 0.9
_OURS_ALONE = 0o700
_DECODERS = ("formats", "engines", "cleanup/addresses.py", "cleanup/arrow_json.py", "ports", "model")
"""All code of the package that decides what a source names."""

_REFERENCES = (
    REFERENCE_SCHEMA,
    REFERENCE_SCHEMA.append(TOLERATED),
    REFERENCE_SCHEMA.append(TOLERATED).append(ELSEWHERE),
)
"""What a decoder may return."""
PACK_SCHEMA = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),  # the cache key of a ReferenceSource
        pa.field("prints", pa.list_(pa.uint64()), nullable=False),  # fingerprints of its references' match keys
        pa.field("inside", pa.list_(pa.bool_()), nullable=False),  # see cleanup.addresses
    ]
)
"""Sources with the fingerprints of their references."""
_PACKS = (PACK_SCHEMA,)
_OBJECTS = (pa.schema([pa.field("data", pa.binary(), nullable=False)]),)


class FingerprintCache:
    """Decoded references by source; the least recently used are evicted first. Thread-safe."""

    def __init__(self, directory: Path, *, limit_bytes: int, key: bytes) -> None:
        """`key` signs every entry; see `state.installation_key`."""
        self._directory = directory
        self._signing_key = key
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._unseen_bytes = limit_bytes  # the first write measures what is already there
        self._writable = True
        self._private: bool | None = None

    def load(self, source: ReferenceSource) -> pa.RecordBatch | None:
        """The references of the source, or None if they must be read from storage."""
        if not cacheable(source):
            return None
        batch = next(self._load(_key(source.cache_key), _REFERENCES), None)
        return None if batch is None or falls_short(source, batch.num_rows) else batch

    def store(self, source: ReferenceSource, batch: pa.RecordBatch) -> None:
        """Keep the references of the source. A full or broken disk only switches the cache off."""
        if cacheable(source):
            self._store(_key(source.cache_key), [batch], "zstd")

    def load_pack(self, scope: str) -> Iterator[pa.RecordBatch]:
        """The valid fingerprints stored under this scope, as PACK_SCHEMA."""
        return self._load(_key(scope), _PACKS)

    def store_pack(self, scope: str, pack: Iterable[pa.RecordBatch]) -> None:
        """Replace the fingerprints of the scope. The scope names everything that fingerprints depend on besides their
        sources. `pack` may read lazily from what `load_pack` returned."""
        self._store(_key(scope), pack, None)

    def remove_pack(self, scope: str) -> None:
        _remove(self._path(_key(scope)))

    def load_object(self, address: str) -> bytes | None:
        """A whole object that never changes, as it was stored."""
        batch = next(self._load(_key(f"object {address}"), _OBJECTS), None)
        return None if batch is None or batch.num_rows != 1 else batch.column("data")[0].as_py()

    def store_object(self, address: str, data: bytes) -> None:
        """Its address alone vouches for it, so it must have a name that is given once."""
        self._store(_key(f"object {address}"), [pa.RecordBatch.from_pylist([{"data": data}], _OBJECTS[0])], None)

    def _load(self, key: bytes, schemas: tuple[pa.Schema, ...]) -> Iterator[pa.RecordBatch]:
        path = self._path(key)
        try:
            if not self._is_ours_alone():
                return
            with path.open("rb", buffering=0) as file:
                found = os.fstat(file.fileno())
                self._refresh(path, found.st_mtime)
                while file.tell() < max(found.st_size, 1):
                    yield self._unpack(_next_entry(file, found.st_size), key, schemas)
        except OSError:
            return
        except (ValueError, struct.error, pa.ArrowException):
            _log.warning("cache_entry_damaged", path=str(path))
            _remove(path)

    def _store(self, key: bytes, batches: Iterable[pa.RecordBatch], compression: str | None) -> None:
        if not self._writable:
            return
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=_OURS_ALONE)
            if not self._is_ours_alone():
                self._writable = False
                return
            written = self._write(self._path(key), (self._pack(batch, key, compression) for batch in batches))
            self._trim_after(written)
        except OSError as exc:
            self._writable = False
            _log.warning("cache_off", directory=str(self._directory), why=str(exc))

    def _is_ours_alone(self) -> bool:
        """Make sure that nobody else can write here: our own directory is closed to others, and one that belongs to
        another user is not used."""
        if self._private is None:
            found = self._directory.lstat()
            self._private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
            if not self._private:
                _log.warning("cache_off", directory=str(self._directory), why="it belongs to another user")
            elif stat.S_IMODE(found.st_mode) != _OURS_ALONE:
                self._directory.chmod(_OURS_ALONE)
        return self._private

    def _pack(self, batch: pa.RecordBatch, key: bytes, compression: str | None) -> bytes:
        sink = pa.BufferOutputStream()
        with ipc.new_stream(sink, batch.schema, options=ipc.IpcWriteOptions(compression=compression)) as writer:
            writer.write_batch(batch)
        body = b"".join((_KEY_LENGTH.pack(len(key)), key, sink.getvalue()))
        length = _ENTRY_LENGTH.pack(len(_MAGIC) + _SIGNATURE_BYTES + len(body))
        return b"".join((length, _MAGIC, self._signature(body), body))

    def _unpack(self, entry: bytes, key: bytes, schemas: tuple[pa.Schema, ...]) -> pa.RecordBatch:
        """The batch, or ValueError if this is not exactly what `_pack` wrote for this key."""
        head = len(_MAGIC) + _SIGNATURE_BYTES
        body = memoryview(entry)[head:]
        signed = hmac.compare_digest(self._signature(body), entry[len(_MAGIC) : head])
        if entry[: len(_MAGIC)] != _MAGIC or not signed:
            raise ValueError("the signature does not match")
        start = _KEY_LENGTH.size
        (length,) = _KEY_LENGTH.unpack(body[:start])
        if body[start : start + length] != key:
            raise ValueError("the entry belongs to another source")
        with ipc.open_stream(pa.py_buffer(body[start + length :])) as reader:
            batch = reader.read_next_batch()
        if batch.schema not in schemas:
            raise ValueError("the entry has an unexpected schema")
        return batch

    def _signature(self, body: bytes | memoryview) -> bytes:
        return hmac.digest(self._signing_key, body, "sha256")

    def _path(self, key: bytes) -> Path:
        name = hashlib.sha256(key).hexdigest()
        return self._directory / name[:2] / f"{name}{_SUFFIX}"

    def _write(self, path: Path, entries: Iterable[bytes]) -> int:
        """Write the file atomically, also when others write the same one. Returns its size; 0 if it is too large to
        keep."""
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=path.parent, suffix=".partial")
        written = 0
        try:
            with os.fdopen(handle, "wb") as file:
                for entry in entries:
                    written += len(entry)
                    if written > self._limit_bytes:
                        return 0
                    file.write(entry)
            Path(partial).replace(path)
        finally:
            Path(partial).unlink(missing_ok=True)
        return written

    def _refresh(self, path: Path, used_at: float) -> None:
        if time.time() - used_at < _REFRESH_SECONDS:
            return
        try:
            os.utime(path)
        except OSError:
            return  # another process evicted it, or the disk is read-only: the time of last use is only a hint

    def _trim_after(self, written: int) -> None:
        with self._lock:
            self._unseen_bytes += written
            if self._unseen_bytes < self._limit_bytes * _TRIM_EVERY:
                return
            self._unseen_bytes = 0
            self._trim()

    def _trim(self) -> None:
        """Remove the least recently used entries until the cache is well below its limit."""
        entries = sorted(self._entries())
        total = sum(size for _, size, _ in entries)
        if total <= self._limit_bytes:
            return
        for _, size, path in entries:
            path.unlink(missing_ok=True)
            total -= size
            if total <= self._limit_bytes * _TRIM_TO:
                return

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        for path in self._directory.glob("??/*"):
            try:
                found = path.stat()
            except FileNotFoundError:
                continue  # another process was faster
            if path.suffix == _SUFFIX:
                yield found.st_mtime, found.st_size, path
            elif time.time() - found.st_mtime > _ABANDONED_SECONDS:
                path.unlink(missing_ok=True)


def cacheable(source: ReferenceSource) -> bool:
    """Only sources with a recorded length are cached: a name alone does not prove the content."""
    return source.size_bytes is not None


def falls_short(source: ReferenceSource, references: int) -> bool:
    """Are these fewer references than metadata records for the source?"""
    return source.at_least is not None and references < source.at_least


def code_identity() -> str:
    """Fingerprints that other code has made are not for this cache."""
    return f"{__version__}|{_decoders()}"


def _remove(path: Path) -> None:
    """A read-only directory keeps damaged files: they are detected again each time, and no plan needs them."""
    with suppress(OSError):
        path.unlink()


def _key(text: str) -> bytes:
    """Other code may decode differently, so each version has its own entries."""
    return f"{code_identity()}|{text}".encode()


@functools.cache
def _decoders() -> str:
    """A digest of the decoding code as it is on disk: a version number would miss a change in place."""
    top = Path(lakesweep.__file__).parent
    found = hashlib.sha256(f"{pa.__version__} {fastavro.__version__}".encode())
    for part in _DECODERS:
        place = top / part
        for file in [place] if place.is_file() else sorted(place.rglob("*")):
            if file.suffix in (".py", ".sql", ".so"):
                found.update(f"{file.relative_to(top)}\0".encode())
                found.update(hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()


def _next_entry(file: io.RawIOBase, size: int) -> bytes:
    """Read the next entry of a file of this size. ValueError if it is truncated."""
    head = file.read(_ENTRY_LENGTH.size) or b""
    (length,) = _ENTRY_LENGTH.unpack(head) if len(head) == _ENTRY_LENGTH.size else (size,)
    if length > size - file.tell():
        raise ValueError("cut off")
    return file.read(length) or b""
