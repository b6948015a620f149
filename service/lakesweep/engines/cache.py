"""What immutable sources name, kept on disk across cycles, so that a steady cycle reads only new sources.

A source has up to two entries: the references themselves, and their fingerprints, which are all that most cycles
need (see `digests`) and which take a fraction of the time to read. Either may be there without the other.

The cache is never trusted: an entry counts only if its checksum holds and it carries the very key that was asked
for. Anything else is removed and read from storage again. It is never needed either: no disk, no cache, same plan.
Several processes may share one directory.
"""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import structlog
import xxhash
from pyarrow import ipc

from lakesweep import __version__
from lakesweep.cleanup.ports import REFERENCE_SCHEMA, TOLERATED, ReferenceSource

_log = structlog.get_logger(__name__)

_MAGIC = b"LSDIGST2"
_CHECKSUM_BYTES = 16
_KEY_LENGTH = struct.Struct("<I")
_SUFFIX = ".refs"

_REFRESH_SECONDS = 3600.0
"""How exactly recency is kept: a hit writes to the disk at most this often per entry."""
_ABANDONED_SECONDS = 3600.0
"""A half-written file older than this has lost its writer."""
_TRIM_EVERY = 0.05
"""Share of the limit that may be written between two looks at the total size."""
_TRIM_TO = 0.9

_REFERENCES = (REFERENCE_SCHEMA, REFERENCE_SCHEMA.append(TOLERATED))
"""What a decoder may return."""
DIGEST_SCHEMA = pa.schema(
    [
        pa.field("print", pa.uint64(), nullable=False),  # the fingerprint of a reference's match key
        pa.field("inside", pa.bool_(), nullable=False),  # see cleanup.addresses
    ]
)
"""A source's references as the big joins see them."""
_DIGESTS = (DIGEST_SCHEMA,)


class DigestCache:
    """Decoded references by source, least recently used first to go. Safe to call from several threads."""

    def __init__(self, directory: Path, *, limit_bytes: int) -> None:
        self._directory = directory
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._unseen_bytes = limit_bytes  # the first store looks at what is already there
        self._writable = True

    def load(self, source: ReferenceSource) -> pa.RecordBatch | None:
        """What the source names, or None if that must be read from storage."""
        return self._load(_key(source), _REFERENCES) if _cacheable(source) else None

    def store(self, source: ReferenceSource, batch: pa.RecordBatch) -> None:
        """Remember what the source names. A full or broken disk turns the cache off and nothing else."""
        if _cacheable(source):
            self._store(_key(source), batch, "zstd")

    def load_digest(self, source: ReferenceSource, scope: str) -> pa.RecordBatch | None:
        """The fingerprints of what the source names, as they were made under the same scope; None if there are none."""
        return self._load(_key(source, scope), _DIGESTS) if _cacheable(source) else None

    def store_digest(self, source: ReferenceSource, scope: str, digest: pa.RecordBatch) -> None:
        """Remember the fingerprints of a source. The scope says all that they depend on besides the source."""
        if _cacheable(source):
            self._store(_key(source, scope), digest, None)

    def _load(self, key: bytes, schemas: tuple[pa.Schema, ...]) -> pa.RecordBatch | None:
        path = self._path(key)
        try:
            entry, used_at = _read(path)
            batch = _unpack(entry, key, schemas)
        except OSError:
            return None
        except (ValueError, pa.ArrowException):
            _log.warning("cache_entry_damaged", path=str(path))
            path.unlink(missing_ok=True)
            return None
        self._refresh(path, used_at)
        return batch

    def _store(self, key: bytes, batch: pa.RecordBatch, compression: str | None) -> None:
        if not self._writable:
            return
        entry = _pack(batch, key, compression)
        if len(entry) > self._limit_bytes:
            return
        try:
            self._write(self._path(key), entry)
            self._trim_after(len(entry))
        except OSError as exc:
            self._writable = False
            _log.warning("cache_off", directory=str(self._directory), why=str(exc))

    def _path(self, key: bytes) -> Path:
        name = hashlib.sha256(key).hexdigest()
        return self._directory / name[:2] / f"{name}{_SUFFIX}"

    def _write(self, path: Path, entry: bytes) -> None:
        """Whole or not at all, whoever else writes the same entry."""
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=path.parent, suffix=".partial")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(entry)
            Path(partial).replace(path)
        except OSError:
            Path(partial).unlink(missing_ok=True)
            raise

    def _refresh(self, path: Path, used_at: float) -> None:
        if time.time() - used_at < _REFRESH_SECONDS:
            return
        try:
            os.utime(path)
        except OSError:
            return  # a neighbour trimmed it, or the disk is read-only: recency is only a hint

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
                continue  # a neighbour was faster
            if path.suffix == _SUFFIX:
                yield found.st_mtime, found.st_size, path
            elif time.time() - found.st_mtime > _ABANDONED_SECONDS:
                path.unlink(missing_ok=True)


def _cacheable(source: ReferenceSource) -> bool:
    """Without a recorded length a name alone would have to vouch for the content."""
    return source.size_bytes is not None


def _key(source: ReferenceSource, scope: str = "") -> bytes:
    """Another version may decode another way, so each has entries of its own."""
    return f"{__version__}|{scope}|{source.cache_key}".encode()


def _read(path: Path) -> tuple[bytes, float]:
    """The whole file, and when it was last used."""
    with path.open("rb", buffering=0) as file:
        return file.readall(), os.fstat(file.fileno()).st_mtime


def _pack(batch: pa.RecordBatch, key: bytes, compression: str | None) -> bytes:
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, batch.schema, options=ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
    body = _KEY_LENGTH.pack(len(key)) + key + sink.getvalue().to_pybytes()
    return b"".join((_MAGIC, xxhash.xxh3_128_digest(body), body))


def _unpack(entry: bytes, key: bytes, schemas: tuple[pa.Schema, ...]) -> pa.RecordBatch:
    """The batch, or ValueError if this is not exactly what `_pack` wrote for this key."""
    head = len(_MAGIC) + _CHECKSUM_BYTES
    body = memoryview(entry)[head:]
    if entry[: len(_MAGIC)] != _MAGIC or xxhash.xxh3_128_digest(body) != entry[len(_MAGIC) : head]:
        raise ValueError("checksum does not match")
    start = _KEY_LENGTH.size
    (length,) = _KEY_LENGTH.unpack(body[:start])
    if body[start : start + length] != key:
        raise ValueError("entry of another source")
    with ipc.open_stream(pa.py_buffer(body[start + length :])) as reader:
        batch = reader.read_next_batch()
    if batch.schema not in schemas:
        raise ValueError("not what an entry of this kind holds")
    return batch
