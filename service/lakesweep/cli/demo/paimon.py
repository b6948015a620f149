"""The Paimon table of the demo's lake: data files by pyarrow, commits by the product's own commit code.

Two weeks of history are written with the times they would have had. Reading goes from the snapshot file down, as
every reader does: lists, manifests, data files.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakesweep.cli.demo import tables
from lakesweep.cli.demo.paimon_shapes import LIST, MANIFEST, PARTITION, entry
from lakesweep.cli.demo.tables import HEAD, DemoTable, Rows
from lakesweep.formats.paimon import manifests, merge
from lakesweep.formats.paimon.binaryrow import decode_row
from lakesweep.formats.paimon.commit import Changes, CommitOptions, Committer
from lakesweep.formats.paimon.commit_files import CommitDraft
from lakesweep.formats.paimon.files import TableFiles
from lakesweep.formats.paimon.lists import ListReader
from lakesweep.formats.paimon.merge import Entry
from lakesweep.formats.paimon.options import read_options
from lakesweep.formats.paimon.schema import parse_schema
from lakesweep.formats.paimon.snapshots import PaimonSnapshot, parse_snapshot
from lakesweep.formats.spec import UnpublishedRemover
from lakesweep.model.location import Location
from lakesweep.storage.local.store import LocalStorage, LocalWriter

_LABEL = "initech/web/visits"
_TAG = "before-import"
_SCHEMA = {
    "version": 3,
    "id": 0,
    "fields": [
        {"id": 0, "name": "id", "type": "BIGINT"},
        {"id": 1, "name": "day", "type": "STRING"},
        {"id": 2, "name": "what", "type": "STRING"},
    ],
    "highestFieldId": 2,
    "partitionKeys": ["day"],
    "primaryKeys": [],
    "options": {
        "bucket": "-1",
        "file.format": "parquet",
        "snapshot.time-retained": "7 d",
        "snapshot.num-retained.min": "2",
        "partition.expiration-time": "60 d",
        "partition.timestamp-formatter": "yyyy-MM-dd",
    },
}


def dataset(tenant: Path) -> dict[str, Any]:
    return {"id": "web", "format": "paimon", "warehouse": f"file://{tenant}/paimon", "database": "web"}


async def build(tenant: Path) -> DemoTable:
    place = tenant / "paimon/web.db/visits"
    writer = _TableWriter(place, tables.days_ago(15))
    long_ago, first, second, third = (f"{tables.days_ago(days):%Y-%m-%d}" for days in (90, 14, 13, 3))
    await writer.append(14, long_ago, tables.rows(0, 60, long_ago))
    await writer.append(13.5, first, tables.rows(100, 40, first))
    await writer.append(13, second, tables.rows(200, 40, second))
    tagged = await writer.append(12.5, second, tables.rows(240, 10, second))
    (place / "tag").mkdir()
    (place / "tag" / f"tag-{_TAG}").write_text(json.dumps(tagged.document))
    await writer.replace(12, first, tables.rows(1100, 45, first), "OVERWRITE")
    await writer.replace(11, first, tables.rows(2100, 50, first), "OVERWRITE")
    await writer.replace(10, second, tables.rows(200, 50, second), "COMPACT")
    await writer.append(3, third, tables.rows(300, 40, third))
    await writer.append(2, third, tables.rows(340, 40, third))
    failed = [place / f"day={first}/bucket-0/data-{uuid.uuid4()}-{number}.parquet" for number in range(3)]
    planted = tables.plant_old(*failed, place / f"manifest/manifest-{uuid.uuid4()}-0")
    tables.plant_young(place / f"day={third}/bucket-0/data-{uuid.uuid4()}-0.parquet")
    note = tables.plant_old(place / f"day={third}/bucket-0/README.txt")
    return DemoTable(
        label=_LABEL,
        format="paimon",
        about="a tag, corrections, a partition past its age",
        read=partial(read, place),
        planted=planted,
        curious=note,
        expiring=frozenset(range(60)),
    )


def read(place: Path) -> Rows:
    latest = (place / "snapshot/LATEST").read_text()
    return {
        HEAD: _read_state(place, place / f"snapshot/snapshot-{latest}"),
        f"tag {_TAG}": _read_state(place, place / f"tag/tag-{_TAG}"),
    }


def _read_state(place: Path, snapshot: Path) -> tuple[int, ...]:
    files = [_path(place, found) for found in _live(place, json.loads(snapshot.read_text()))]
    return tables.ids_of(pa.concat_tables([pq.read_table(file, partitioning=None) for file in files]))


def _live(place: Path, snapshot: Mapping[str, Any]) -> list[Entry]:
    """The files of one state: what manifests add and do not take back, in order."""
    live: dict[merge.Identity, Entry] = {}
    for name in (snapshot["baseManifestList"], snapshot["deltaManifestList"]):
        for meta in manifests.read_list((place / "manifest" / name).read_bytes()):
            for change in manifests.read_entries((place / "manifest" / meta.name).read_bytes()):
                if change["_KIND"] == manifests.ADD:
                    live[merge.identity(change)] = change
                else:
                    del live[merge.identity(change)]
    return list(live.values())


def _path(place: Path, found: Entry) -> Path:
    (day,) = decode_row(found["_PARTITION"], PARTITION)
    name: str = found["_FILE"]["_FILE_NAME"]
    return place / f"day={day!s}" / "bucket-0" / name


class _BackdatedStorage(LocalStorage):
    """Today's files by the clock of another day: a commit is never older than its store says."""

    moment: datetime

    async def now(self) -> datetime:
        return self.moment


class _TableWriter:
    def __init__(self, place: Path, created: datetime) -> None:
        self._place = place
        for directory in ("schema", "snapshot", "manifest"):
            (place / directory).mkdir(parents=True)
        schema = {**_SCHEMA, "timeMillis": int(created.timestamp() * 1000)}
        data = json.dumps(schema, indent=2).encode()
        (place / "schema/schema-0").write_bytes(data)
        options = read_options(parse_schema(data).options).manifest
        self._options = CommitOptions(schema=parse_schema(data), manifest=options)
        self._storage = _BackdatedStorage()
        self._files = TableFiles(storage=self._storage, location=Location.parse(str(place)))
        self._writer = LocalWriter()
        self._latest: PaimonSnapshot | None = None

    async def append(self, days: float, day: str, rows: pa.Table) -> PaimonSnapshot:
        return await self._commit("APPEND", [self._data_file(day, rows, tables.days_ago(days))], days)

    async def replace(self, days: float, day: str, rows: pa.Table, kind: str) -> PaimonSnapshot:
        """One new file instead of all that a partition has."""
        new = self._data_file(day, rows, tables.days_ago(days), compacted=kind == "COMPACT")
        live = _live(self._place, self._latest.document) if self._latest else []
        old = [{**found, "_KIND": manifests.DELETE} for found in live if found["_PARTITION"] == new["_PARTITION"]]
        return await self._commit(kind, [*old, new], days)

    def _data_file(self, day: str, rows: pa.Table, written: datetime, *, compacted: bool = False) -> Entry:
        path = self._place / f"day={day}/bucket-0/data-{uuid.uuid4()}-0.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, path)
        return entry(path, day=day, rows=rows.num_rows, written=written, compacted=compacted)

    async def _commit(self, kind: str, changes: Sequence[Entry], days: float) -> PaimonSnapshot:
        moment = tables.days_ago(days)
        if self._latest is None:
            self._latest = await self._first(changes, moment)
        else:
            self._storage.moment = moment
            committer = Committer(self._files, ListReader(self._files), self._writer, UnpublishedRemover())
            delta = Changes(kind=kind, delta=tuple(changes), delta_shape=MANIFEST)
            self._latest = await committer.commit(self._latest, delta, self._options, moment) or self._latest
        self._backdate(moment)
        return self._latest

    async def _first(self, changes: Sequence[Entry], moment: datetime) -> PaimonSnapshot:
        """Later commits take their shape from the ones before; the first one brings its own."""
        draft = CommitDraft(
            self._files, self._writer, types=self._options.types, list_shape=LIST, options=self._options.manifest
        )
        rows = sum(change["_FILE"]["_ROW_COUNT"] for change in changes)
        records = await draft.write_manifests(MANIFEST, _stream(changes), bytes_per_entry=1)
        base, base_size = await draft.write_list([])
        delta, delta_size = await draft.write_list(records)
        document = {
            "version": 3,
            "id": 1,
            "schemaId": 0,
            "baseManifestList": base,
            "baseManifestListSize": base_size,
            "deltaManifestList": delta,
            "deltaManifestListSize": delta_size,
            "commitUser": "demo",
            "commitIdentifier": 2**63 - 1,
            "commitKind": "APPEND",
            "timeMillis": int(moment.timestamp() * 1000),
            "totalRecordCount": rows,
            "deltaRecordCount": rows,
        }
        location = self._files.at("snapshot", "snapshot-1")
        await self._writer.put(location, json.dumps(document).encode(), create_only=True)
        await self._writer.put(self._files.at("snapshot", "LATEST"), b"1", create_only=False)
        return parse_snapshot(json.dumps(document).encode(), location)

    def _backdate(self, moment: datetime) -> None:
        """What was written just now, as if it had been then."""
        for path in self._place.rglob("*"):
            if path.is_file() and path.stat().st_mtime > (moment + timedelta(seconds=1)).timestamp():
                tables.set_time(path, moment)


async def _stream(entries: Sequence[Entry]) -> AsyncIterator[Entry]:
    for change in entries:
        yield change
