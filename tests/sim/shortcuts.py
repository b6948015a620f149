"""What a story can do without: processes of its own, and working the same out twice. Nothing is decided otherwise.

The product decodes Parquet files in a child process, against files made to hurt. Stories have none of these: the
decoder's own code runs here. The rows of plans and ledgers are not encoded: see plan_files.py. Some functions of the
product give the same answer to the same question; their answers are kept. Mutants still find the functions, below what
is wrapped around them. The stopwatch with which the product notices a slow store stands still: it would measure this
machine.
"""

from __future__ import annotations

import functools
import io
import json
import typing
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from tests.sim import plan_files

from lakesweep.audit import chain, records
from lakesweep.cleanup import addresses, arrow_json, ledger, plan_file
from lakesweep.formats import columnar, columnar_worker, streams
from lakesweep.formats.delta import actions, checkpoint, log, other_commits
from lakesweep.formats.delta import files as delta_files
from lakesweep.formats.delta import load as delta_load
from lakesweep.formats.delta import state as delta_state
from lakesweep.formats.iceberg import decode, metadata, other_histories
from lakesweep.formats.paimon import files as paimon_files
from lakesweep.formats.paimon import manifests, schema
from lakesweep.formats.paimon import table as paimon_table
from lakesweep.model.location import Location

_MOST = 20_000
_MOST_PAGES = 500
_NOTHING = object()


class InlineWorker:
    """In the place of `columnar._Worker`: the other end is called instead of written to."""

    usable = True

    def __init__(self) -> None:
        self._kind, self._data = "", b""
        self._frames: list[tuple[bytes, memoryview]] = []

    def send(self, kind: str, data: bytes) -> None:
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


def _kept(function: Callable[..., Any], key: Callable[..., Any], most: int = _MOST) -> Callable[..., Any]:
    """The same answer to the same question. What it raises is raised anew."""
    known: dict[Any, Any] = {}

    @functools.wraps(function)
    def asked(*args: Any, **options: Any) -> Any:
        what = key(*args, **options)
        found = known.get(what, _NOTHING)
        if found is _NOTHING:
            if len(known) >= most:
                known.clear()
            found = known[what] = function(*args, **options)
        return found

    return asked


def _of_page(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a page of a listing, which comes again until something changes there. It is kept with the answer: as
    long as it lives nothing else has its id. Each caller gets a copy of its own."""
    known: dict[Any, tuple[pa.RecordBatch, Any]] = {}

    @functools.wraps(function)
    def asked(page: pa.RecordBatch, *args: Any) -> Any:
        what = (id(page), *args)
        found = known.get(what)
        if found is None:
            if len(known) >= _MOST_PAGES:
                known.clear()
            found = known[what] = (page, function(page, *args))
        return found[1].copy()

    return asked


def _of_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a value that nobody changes, by its identity."""
    known: dict[Any, tuple[Any, Any]] = {}

    @functools.wraps(function)
    def asked(value: Any, *args: Any) -> Any:
        what = (id(value), *args)
        found = known.get(what)
        if found is None:
            if len(known) >= _MOST_PAGES:
                known.clear()
            found = known[what] = (value, function(value, *args))
        return found[1]

    return asked


def _of_commits(replay: Callable[..., Any]) -> Callable[..., Any]:
    """The same for commits of a Delta log, by the identity of what each says of files."""
    known: dict[Any, tuple[Any, Any]] = {}

    @functools.wraps(replay)
    def asked(cls: type, commits: Iterable[actions.Actions]) -> Any:
        those = list(commits)
        tables = [one.files for one in those]
        what = tuple(map(id, tables))
        found = known.get(what)
        if found is None:
            if len(known) >= _MOST_PAGES:
                known.clear()
            found = known[what] = (tables, replay(cls, those))
        return found[1]

    return asked


def _of_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for rows, by where they are in memory."""
    known: dict[Any, tuple[pa.RecordBatch, Any]] = {}

    @functools.wraps(function)
    def asked(rows: pa.RecordBatch) -> Any:
        columns = rows.columns
        buffers = [buffer for column in columns for buffer in column.buffers()]
        places = tuple(None if buffer is None else buffer.address for buffer in buffers)
        what = (columns[0].offset, rows.num_rows, places)
        found = known.get(what)
        if found is None:
            if len(known) >= _MOST_PAGES:
                known.clear()
            found = known[what] = (rows, function(rows))
        return found[1]

    return asked


def _of_no_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for rows of which there are none: only their type matters. All tables are of one schema."""
    kept = _kept(function, lambda rows, *_, **__: rows.type if isinstance(rows, pa.Array) else None)

    @functools.wraps(function)
    def asked(rows: pa.Array | pa.Table, *args: Any, **options: Any) -> Any:
        return (function if len(rows) else kept)(rows, *args, **options)

    return asked


def _texts(array: pa.Array) -> Any:
    """What tells columns of texts apart."""
    return tuple(array.to_pylist())


def _bytes_of(column: pa.Array | bool) -> Any:
    """What tells any two columns apart: all that they have in memory."""
    if isinstance(column, bool):
        return column
    buffers = [None if one is None else one.to_pybytes() for one in column.buffers()]
    return (column.type.id, len(column), column.offset, *buffers)


def _placed(paths: pa.Array, role: Any, match_by: Any, roots: Any, tolerated: pa.Array | bool = False) -> Any:
    return (_bytes_of(paths), role, match_by, tuple(roots), _bytes_of(tolerated))


class _Singly(dict[str, Any]):
    """What is known of single paths. What holds of one does not depend on those beside it."""

    def of(self, paths: list[str], ask: Callable[[pa.Array], Sequence[Any]]) -> list[Any]:
        """Of each; only those that are new are asked for."""
        new = [path for path in paths if path not in self]
        if new:
            if len(self) >= _MOST:
                self.clear()
                new = paths
            self.update(zip(new, ask(pa.array(new, pa.string())), strict=True))
        return [self[path] for path in paths]


def _keys(function: Callable[..., pa.Array]) -> Callable[..., pa.Array]:
    """The match keys of paths."""
    known: dict[Any, _Singly] = defaultdict(_Singly)

    @functools.wraps(function)
    def asked(paths: pa.Array, match_by: Any) -> pa.Array:
        found = known[match_by].of(paths.to_pylist(), lambda new: function(new, match_by).to_pylist())
        return pa.array(found, pa.string())

    return asked


def _places(function: Callable[..., pa.RecordBatch]) -> Callable[..., pa.RecordBatch]:
    """Where references are: their address, match key, whether that is inside, and the name that they guard."""
    known: dict[Any, _Singly] = defaultdict(_Singly)

    @functools.wraps(function)
    def asked(
        paths: pa.Array, role: Any, match_by: Any, roots: Any, tolerated: pa.Array | bool = False
    ) -> pa.RecordBatch:
        def placed(new: pa.Array) -> Sequence[Any]:
            found = function(new, role, match_by, roots).drop_columns(["role", "outside"])
            return list(zip(*(column.to_pylist() for column in found.columns), strict=True))

        rows = known[match_by, tuple(roots)].of(paths.to_pylist(), placed)
        if not rows:
            return function(paths, role, match_by, roots, tolerated)
        types = (pa.string(), pa.string(), pa.bool_(), pa.string())
        columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), types, strict=True)]
        return addresses._placed(columns, role, tolerated)

    return asked


def _listed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The manifests of a Paimon list, by its bytes. Each caller gets a list of its own."""
    kept = _kept(function, lambda data: data)
    return functools.wraps(function)(lambda data, known=None: list(kept(data)))


def _at_once(function: Callable[..., Iterator[Any]]) -> Callable[..., tuple[Any, ...]]:
    """All that it yields."""
    return functools.wraps(function)(lambda *args: tuple(function(*args)))


@functools.cache
def _shortcuts() -> tuple[tuple[Any, str, Any, Any], ...]:
    """Where each of them goes, what is there otherwise, and what takes its place. Made once: answers are kept."""
    parse = Location.__dict__["parse"]
    wrapped = (
        (manifests, "read_columns", lambda data, columns, *, expected=None: (data, tuple(columns), expected)),
        (actions, "parse", lambda *asked: asked),
        (checkpoint, "read_head", lambda *asked: asked),
        (metadata, "parse", lambda *asked: asked),
        (decode, "decode_counted", lambda address, data, summary: (address, data, tuple(summary.items()))),
        (schema, "parse_schema", lambda data: data),
        (paimon_table, "read_options", lambda options: tuple(options.items())),
        (decode, "_read", lambda address, data, wanted: (address, data, tuple(wanted))),
        (arrow_json, "json_strings", _texts),
        (arrow_json, "json_repeated", _texts),
        (records, "_unless_empty", lambda name, values: (name, _texts(values))),
        (streams, "of_summary", lambda summary: tuple(summary.items())),
        (chain, "directory", lambda *asked: asked),
        (chain, "segment_place", lambda *asked: asked),
        (paimon_files.TableFiles, "at", lambda files, *parts: (files.location, parts)),
        (typing, "_get_protocol_attrs", lambda protocol: protocol),
    )
    parquet = columnar_worker._Parquet
    pages = ((paimon_files, "_rows"), (other_histories, "stamps"), (delta_load, "_rows"))
    often_none = (
        *((delta_files, name) for name in ("_from_rows", "addresses", "aliases", "elsewhere", "among", "may_name")),
        *((delta_state, "protects"), (checkpoint, "protects"), (checkpoint, "_from_actions")),
    )
    again = ((checkpoint, "structs"), (delta_files, "adds"), (delta_files, "removes"), (manifests, "by_partition"))
    replay, turns = delta_state.Tail.__dict__["replay"], checkpoint.read_in_turns
    return (
        (plan_file, "pq", plan_file.pq, plan_files),
        (ledger, "pq", ledger.pq, plan_files),
        (other_histories, "time", other_histories.time, SimpleNamespace(monotonic=lambda: 0.0)),
        (plan_file, "_canonical", plan_file._canonical, _of_rows(plan_file._canonical)),
        (other_commits, "_oddly_named", other_commits._oddly_named, _of_no_rows(_of_one(other_commits._oddly_named))),
        (delta_files, "dated", delta_files.dated, _of_no_rows(_of_one(delta_files.dated))),
        (delta_state.Tail, "replay", replay, classmethod(_of_commits(replay.__func__))),
        (checkpoint, "read_in_turns", turns, _kept(_at_once(turns), lambda *asked: asked)),
        *((owner, name, getattr(owner, name), _of_no_rows(getattr(owner, name))) for owner, name in often_none),
        *((owner, name, getattr(owner, name), _of_one(getattr(owner, name))) for owner, name in again),
        (manifests, "read_list", manifests.read_list, _listed(manifests.read_list)),
        (addresses, "match_keys", addresses.match_keys, _keys(addresses.match_keys)),
        (addresses, "place", addresses.place, _kept(_places(addresses.place), _placed)),
        *((owner, name, getattr(owner, name), _of_page(getattr(owner, name))) for owner, name in pages),
        (columnar, "_Worker", columnar._Worker, InlineWorker),
        (columnar_worker, "_Parquet", parquet, _kept(parquet, lambda data: data, _MOST_PAGES)),
        (parquet, "head", parquet.head, _of_one(parquet.head)),
        (log, "parse_name", log.parse_name, functools.lru_cache(_MOST)(log.parse_name)),
        (Location, "parse", parse, classmethod(functools.lru_cache(_MOST)(parse.__func__))),
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
        plan_files.forget()
