"""What a story can do without: processes of its own, and working the same out twice. Nothing is decided otherwise.

The product decodes Parquet files in a child process, against files made to hurt. Stories have none of these: the
decoder's own code runs here. Some functions of the product give the same answer to the same bytes; their answers are
kept. Mutants still find the functions, below what is wrapped around them.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lakesweep.formats import columnar, columnar_worker
from lakesweep.formats.delta import actions, checkpoint, names
from lakesweep.formats.delta import files as delta_files
from lakesweep.formats.iceberg import decode, metadata
from lakesweep.formats.paimon import manifests
from lakesweep.model.location import Location

_MOST = 20_000


class InlineWorker:
    """In the place of `columnar._Worker`: the other end is called instead of written to."""

    usable = True

    def __init__(self) -> None:
        self._kind, self._data = "", b""
        self._frames: list[tuple[bytes, memoryview]] = []

    def ask(self, kind: str, data: bytes) -> None:
        self._kind, self._data = kind, data
        self._frames = list(_served(kind, data, None)[:1])

    def want(self, wanted: dict[str, Any] | None) -> None:
        if wanted is not None:
            self._frames = list(_served(self._kind, self._data, json.dumps(wanted))[1:])

    def answer(self, *_: bytes) -> memoryview | None:
        kind, payload = self._frames.pop(0)
        if kind == columnar_worker.ERROR:
            raise ValueError(str(payload, "utf-8", "replace"))
        return None if kind == columnar_worker.END else payload

    def finish(self) -> None:
        """Nothing is left behind."""

    def end(self) -> None:
        """Nothing to stop."""


@functools.lru_cache(maxsize=2000)
def _served(kind: str, data: bytes, wanted: str | None) -> tuple[tuple[bytes, memoryview], ...]:
    """What the child process would answer."""
    source = io.BytesIO(data + (wanted or "null").encode() + b"\n")
    target = io.BytesIO()
    try:
        columnar_worker._serve({"kind": kind, "size": len(data)}, source, target)
    except Exception as exc:  # noqa: BLE001 - as the child does: it is what the file is
        columnar_worker._send(target, columnar_worker.ERROR, str(exc)[:2000].encode())
    answered, at = memoryview(target.getvalue()), 0
    frames = []
    while at < len(answered):
        found, length = columnar_worker.LENGTH.unpack_from(answered, at)
        at += columnar_worker.LENGTH.size
        frames.append((found, answered[at : at + length]))
        at += length
    return tuple(frames)


def _kept(function: Callable[..., Any], key: Callable[..., Any]) -> Callable[..., Any]:
    """The same answer to the same question. What it raises is raised anew."""
    known: dict[Any, Any] = {}

    @functools.wraps(function)
    def asked(*args: Any) -> Any:
        what = key(*args)
        if what not in known:
            if len(known) >= _MOST:
                known.clear()
            known[what] = function(*args)
        return known[what]

    return asked


@functools.cache
def _shortcuts() -> tuple[tuple[Any, str, Any, Any], ...]:
    """Where each of them goes, what is there otherwise, and what takes its place. Made once: answers are kept."""
    parse = Location.__dict__["parse"]
    wrapped = (
        (manifests, "_read_table", lambda data, wanted, schema: (data, tuple(wanted))),
        (delta_files, "none", lambda: None),
        (actions, "parse", lambda *asked: asked),
        (checkpoint, "read_head", lambda *asked: asked),
        (names, "parse", lambda relative: relative),
        (metadata, "parse", lambda *asked: asked),
        (decode, "_read", lambda address, data, wanted: (address, data, tuple(wanted))),
    )
    return (
        (columnar, "_Worker", columnar._Worker, InlineWorker),
        (Location, "parse", parse, classmethod(_kept(parse.__func__, lambda cls, text: (cls, text)))),
        *((owner, name, getattr(owner, name), _kept(getattr(owner, name), key)) for owner, name, key in wrapped),
    )


@contextmanager
def taken() -> Iterator[None]:
    """Take them while a story is told. Other tests of the same process get the product as it is."""
    for owner, name, _, shortcut in _shortcuts():
        setattr(owner, name, shortcut)
    try:
        yield
    finally:
        for owner, name, usual, _ in _shortcuts():
            setattr(owner, name, usual)
