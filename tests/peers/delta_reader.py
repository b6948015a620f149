"""An independent little reader of Delta logs: which files a version has, from whatever log is left.

It shares nothing with the product. It knows deletion vectors the other way round: it encodes the UUID in a file's
name and looks for that text in the log.
"""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq

_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_BIN = re.compile(r"deletion_vector_([0-9a-f-]{36})\.bin")

State = dict[tuple[str, str], dict[str, Any]]


def latest(table: Path) -> int:
    """The newest version."""
    return max(int(one.name[:20]) for one in (table / "_delta_log").glob("[0-9]*.json") if len(one.name) == 25)


def rebuild(table: Path, version: int | None = None, vectors_of: set[str] | None = None) -> set[str]:
    """Data files and files of vectors that a version has, below the table. Raises when the log does not tell.

    `vectors_of` are names of .bin files to look for besides those that are there: a lost one must not go unseen.
    """
    log = table / "_delta_log"
    version = latest(table) if version is None else version
    start, state = -1, State()
    for candidate in sorted({int(one.name[:20]) for one in log.glob("[0-9]*.checkpoint*")}, reverse=True):
        found = _checkpoint(log, candidate) if candidate <= version else None
        if found is not None:
            start, state = candidate, found
            break
    for number in range(start + 1, version + 1):
        for line in (log / f"{number:020d}.json").read_text().splitlines():
            _apply(state, json.loads(line))
    files = {_below(table, path) for path, _ in state}
    bins = {str(one.relative_to(table)) for one in table.rglob("*.bin")} | (vectors_of or set())
    named = "\n".join(str((add.get("deletionVector") or {}).get("pathOrInlineDv")) for add in state.values())
    return {name for name in files if name} | {name for name in bins if _encoded(name) in named}


def _below(table: Path, spelled: str) -> str:
    path = unquote(urlparse(spelled).path if re.match(r"[a-z0-9]+:/", spelled) else spelled)
    if not path.startswith("/"):
        return path
    return str(Path(path).relative_to(table)) if Path(path).is_relative_to(table) else ""


def _encoded(name: str) -> str:
    found = _BIN.search(name)
    if not found:
        return "\0"
    data, text = uuid.UUID(found.group(1)).bytes, ""
    for start in range(0, 16, 4):
        number = int.from_bytes(data[start : start + 4], "big")
        text += "".join(_ALPHABET[number // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return text


def _checkpoint(log: Path, version: int) -> State | None:
    """The adds of the first checkpoint of this version that can be read."""
    groups: dict[str, list[Path]] = {}
    for one in sorted(log.glob(f"{version:020d}.checkpoint.*")):
        pieces = one.name.split(".")
        groups.setdefault(pieces[3] if len(pieces) == 5 else one.name, []).append(one)
    for key, files in groups.items():
        if key.isdigit() and len(files) != int(key):
            continue
        try:
            rows = [row for file in files for row in _rows(file)]
            named = [row["sidecar"]["path"] for row in rows if row.get("sidecar")]
            rows += [row for name in named for row in _rows(log / "_sidecars" / name)]
        except (OSError, ValueError):
            continue
        state: State = {}
        for row in rows:
            _apply(state, {name: body for name, body in row.items() if name == "add" and body})
        return state
    return None


def _rows(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".json":
        return [json.loads(line) for line in path.read_text().splitlines()]
    return pq.ParquetFile(path).read().to_pylist()


def _apply(state: State, action: dict[str, Any]) -> None:
    for name, body in action.items():
        if name in ("add", "remove"):
            vector = body.get("deletionVector") or {}
            key = (_canonical(body["path"]), f"{vector.get('pathOrInlineDv')}@{vector.get('offset')}")
            if name == "add":
                state[key] = body
            else:
                state.pop(key, None)


def _canonical(path: str) -> str:
    """`/x`, `file:/x` and `file:///x` are one file."""
    return re.sub(r"^file:/+", "/", path)
