"""A small Paimon table in memory that keeps its own books: which files every snapshot, tag and branch needs.

The files it writes are real (snapshot JSON, Avro lists and manifests in Java's shape), the bookkeeping beside them
is not derived from them: it is what a cleaner's work is measured against. Everything happens at once and without
I/O calls, so that it can also act as another process in the middle of a cycle.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from lakesweep.formats import avro
from lakesweep.formats.paimon.binaryrow import encode_row
from lakesweep.formats.paimon.commit_files import list_record
from lakesweep.formats.paimon.schema import FieldType, Kind
from lakesweep.storage.memory import Bucket, Held

STRING = [FieldType(kind=Kind.STRING)]
_NAME = "org.apache.paimon.avro.generated.record"


def _nullable(type_: Any) -> Any:
    return ["null", type_]


def _stats(name: str) -> dict[str, Any]:
    fields = [
        {"name": "_MIN_VALUES", "type": "bytes"},
        {"name": "_MAX_VALUES", "type": "bytes"},
        {"name": "_NULL_COUNTS", "type": _nullable({"type": "array", "items": ["null", "long"]}), "default": None},
    ]
    return {"type": "record", "name": name, "fields": fields}


def _optional(name: str, type_: Any) -> dict[str, Any]:
    return {"name": name, "type": _nullable(type_), "default": None}


LIST_SCHEMA = {
    "type": "record",
    "name": _NAME,
    "fields": [
        {"name": "_VERSION", "type": "int"},
        {"name": "_FILE_NAME", "type": "string"},
        {"name": "_FILE_SIZE", "type": "long"},
        {"name": "_NUM_ADDED_FILES", "type": "long"},
        {"name": "_NUM_DELETED_FILES", "type": "long"},
        {"name": "_PARTITION_STATS", "type": _stats(f"{_NAME}__PARTITION_STATS")},
        {"name": "_SCHEMA_ID", "type": "long"},
        *[_optional(name, "int") for name in ("_MIN_BUCKET", "_MAX_BUCKET", "_MIN_LEVEL", "_MAX_LEVEL")],
    ],
}
MANIFEST_SCHEMA = {
    "type": "record",
    "name": _NAME,
    "fields": [
        {"name": "_VERSION", "type": "int"},
        {"name": "_KIND", "type": "int"},
        {"name": "_PARTITION", "type": "bytes"},
        {"name": "_BUCKET", "type": "int"},
        {"name": "_TOTAL_BUCKETS", "type": "int"},
        {
            "name": "_FILE",
            "type": {
                "type": "record",
                "name": f"{_NAME}__FILE",
                "fields": [
                    {"name": "_FILE_NAME", "type": "string"},
                    {"name": "_FILE_SIZE", "type": "long"},
                    {"name": "_ROW_COUNT", "type": "long"},
                    {"name": "_MIN_KEY", "type": "bytes"},
                    {"name": "_MAX_KEY", "type": "bytes"},
                    {"name": "_KEY_STATS", "type": _stats(f"{_NAME}__FILE__KEY_STATS")},
                    {"name": "_VALUE_STATS", "type": _stats(f"{_NAME}__FILE__VALUE_STATS")},
                    {"name": "_MIN_SEQUENCE_NUMBER", "type": "long"},
                    {"name": "_MAX_SEQUENCE_NUMBER", "type": "long"},
                    {"name": "_SCHEMA_ID", "type": "long"},
                    {"name": "_LEVEL", "type": "int"},
                    {"name": "_EXTRA_FILES", "type": {"type": "array", "items": "string"}},
                    _optional("_CREATION_TIME", {"type": "long", "logicalType": "timestamp-millis"}),
                    _optional("_DELETE_ROW_COUNT", "long"),
                    _optional("_EMBEDDED_FILE_INDEX", "bytes"),
                    _optional("_FILE_SOURCE", "int"),
                    _optional("_VALUE_STATS_COLS", {"type": "array", "items": "string"}),
                    _optional("_EXTERNAL_PATH", "string"),
                ],
            },
        },
    ],
}
INDEX_SCHEMA = {
    "type": "record",
    "name": _NAME,
    "fields": [
        {"name": "_VERSION", "type": "int"},
        {"name": "_KIND", "type": "int"},
        {"name": "_PARTITION", "type": "bytes"},
        {"name": "_BUCKET", "type": "int"},
        {"name": "_INDEX_TYPE", "type": "string"},
        {"name": "_FILE_NAME", "type": "string"},
        {"name": "_FILE_SIZE", "type": "long"},
        {"name": "_ROW_COUNT", "type": "long"},
        _optional("_EXTERNAL_PATH", "string"),
    ],
}
_EMPTY_STATS = {"_MIN_VALUES": encode_row([], []), "_MAX_VALUES": encode_row([], []), "_NULL_COUNTS": []}


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One data file: where it is and what else belongs to it."""

    name: str
    partition: str | None
    level: int = 0
    extras: tuple[str, ...] = ()
    source: int = 0
    rows: int = 10
    spelled: bytes | None = None
    """The partition as another writer may spell it."""
    external: str | None = None
    """The directory of another place in which it is, outside of the table."""

    def entry(self, kind: int) -> dict[str, Any]:
        """As a manifest has it."""
        return {
            "_VERSION": 2,
            "_KIND": kind,
            "_PARTITION": self.spelled or encode_row([self.partition], STRING),
            "_BUCKET": 0,
            "_TOTAL_BUCKETS": 1,
            "_FILE": {
                "_FILE_NAME": self.name,
                "_FILE_SIZE": 5,
                "_ROW_COUNT": self.rows,
                "_MIN_KEY": b"",
                "_MAX_KEY": b"",
                "_KEY_STATS": _EMPTY_STATS,
                "_VALUE_STATS": _EMPTY_STATS,
                "_MIN_SEQUENCE_NUMBER": 0,
                "_MAX_SEQUENCE_NUMBER": 0,
                "_SCHEMA_ID": 0,
                "_LEVEL": self.level,
                "_EXTRA_FILES": list(self.extras),
                "_CREATION_TIME": 1_700_000_000_000,
                "_DELETE_ROW_COUNT": 0,
                "_EMBEDDED_FILE_INDEX": None,
                "_FILE_SOURCE": self.source,
                "_VALUE_STATS_COLS": None,
                "_EXTERNAL_PATH": self.external and f"{self.external}/{self.name}",
            },
        }

    def places(self) -> set[str]:
        """Where it and its extra files are, below the table."""
        if self.external:
            return set()
        directory = f"dt={self.partition or '__DEFAULT_PARTITION__'}/bucket-0"
        return {f"{directory}/{name}" for name in (self.name, *self.extras)}


@dataclass(slots=True, kw_only=True)
class Line:
    """The main table or one branch: its newest snapshot, and what the next one builds on."""

    snapshot: dict[str, Any] | None = None
    metas: list[dict[str, Any]] = field(default_factory=list)
    live: dict[tuple[str, int], DataFile] = field(default_factory=dict)
    index: set[str] = field(default_factory=set)
    changelog: frozenset[str] = frozenset()
    """Files of the newest snapshot's changelog."""
    next_id: int = 1

    def copy(self) -> Line:
        return Line(
            snapshot=self.snapshot,
            metas=list(self.metas),
            live=dict(self.live),
            index=set(self.index),
            changelog=self.changelog,
            next_id=self.next_id,
        )


class ModelTable:
    """The table. Keys of `needs` are files below the table that name what must stay as long as they are there."""

    def __init__(self, bucket: Bucket, place: str, now: datetime, options: dict[str, str] | None = None) -> None:
        self.bucket = bucket
        self.place = place
        self.now = now
        self.stream: str | None = None
        """The commit user of a stream that commits from now on; None for batches."""
        self.lines: dict[str, Line] = {"main": Line()}
        self.states: dict[str, Line] = {}
        """What each snapshot and tag file stands for, to go back to."""
        self.needs: dict[str, frozenset[str]] = {}
        self.files: list[DataFile] = []
        self.put_json("schema/schema-0", self.schema(options or {}))

    @staticmethod
    def schema(options: dict[str, str]) -> dict[str, Any]:
        fields = [{"id": 0, "name": "k", "type": "INT"}, {"id": 1, "name": "dt", "type": "STRING"}]
        return {
            "version": 3,
            "id": 0,
            "fields": fields,
            "highestFieldId": 1,
            "partitionKeys": ["dt"],
            "primaryKeys": [],
            "options": {"bucket": "1", **options},
            "timeMillis": 1,
        }

    # What others see

    @property
    def address(self) -> str:
        return f"memory://{self.bucket.name}/{self.place}"

    def stored(self) -> set[str]:
        """Every file below the table."""
        prefix = f"{self.place}/"
        return {key[len(prefix) :] for key in self.bucket.objects if key.startswith(prefix)}

    def standing(self) -> list[str]:
        """Snapshot, tag and branch files that are there."""
        stored = self.stored()
        return sorted(name for name in self.needs if name in stored)

    def lost(self, besides: frozenset[str] = frozenset()) -> set[str]:
        """Files that something still there needs and that are gone. Must always be empty."""
        stored = self.stored()
        return {key for name in self.standing() if name not in besides for key in self.needs[name]} - stored

    # What happens to the table

    def append(self, partition: str | None, *, branch: str = "main", extras: int = 0, source: int = 0) -> None:
        name = f"data-{uuid.uuid4()}-0.orc"
        file = DataFile(
            name=name, partition=partition, extras=tuple(f"{name}.{n}.index" for n in range(extras)), source=source
        )
        self.commit(branch, adds=[file])

    def overwrite(self, partition: str | None, *, branch: str = "main") -> None:
        """New data instead of everything in one partition."""
        line = self.lines[branch]
        old = [file for file in line.live.values() if file.partition == partition]
        self.commit(
            branch,
            deletes=old,
            adds=[DataFile(name=f"data-{uuid.uuid4()}-0.orc", partition=partition)],
            kind="OVERWRITE",
        )

    def compact(self, partition: str | None, *, branch: str = "main") -> None:
        """All files of a partition merged into one."""
        old = [file for file in self.lines[branch].live.values() if file.partition == partition]
        if old:
            merged = DataFile(name=f"data-{uuid.uuid4()}-0.orc", partition=partition, level=5, source=1)
            self.commit(branch, deletes=old, adds=[merged], kind="COMPACT")

    def upgrade(self, partition: str | None, *, branch: str = "main") -> None:
        """A file moves up one level under the same name."""
        for file in list(self.lines[branch].live.values()):
            if file.partition == partition and file.level < 5:
                higher = DataFile(
                    name=file.name, partition=partition, level=file.level + 1, extras=file.extras, source=file.source
                )
                self.commit(branch, deletes=[file], adds=[higher], kind="COMPACT")
                return

    def drop(self, partition: str | None, *, branch: str = "main") -> None:
        old = [file for file in self.lines[branch].live.values() if file.partition == partition]
        if old:
            self.commit(branch, deletes=old, kind="OVERWRITE")

    def restore(self, *, branch: str = "main") -> None:
        """A file that was deleted is added again, as a rollback to an old state as the latest does."""
        stored = self.stored()
        live = self.lines[branch].live
        for file in self.files:
            if (
                (file.name, file.level) not in live
                and file.places() <= stored
                and not any(n == file.name for n, _ in live)
            ):
                self.commit(branch, adds=[file])
                return

    def index(self, *, branch: str = "main") -> None:
        """A new index file instead of an old one."""
        line = self.lines[branch]
        line.index = {*sorted(line.index)[1:], f"index-{uuid.uuid4()}-0"}
        for name in line.index:
            self.put(f"index/{name}", b"index")
        self.commit(branch)

    def merge(self, *, branch: str = "main") -> None:
        """All manifests into one that knows live files only."""
        self.commit(branch, merge=True, kind="COMPACT")

    def changelog(self, partition: str | None) -> None:
        """A commit with a changelog file."""
        name = f"changelog-{uuid.uuid4()}-0.orc"
        self.commit(
            "main",
            adds=[DataFile(name=f"data-{uuid.uuid4()}-0.orc", partition=partition)],
            changelog=[DataFile(name=name, partition=partition)],
        )

    def tag(self, name: str, *, branch: str = "main") -> None:
        line = self.lines[branch]
        if line.snapshot is not None:
            self._stand(f"{self._under(branch)}tag/tag-{name}", line, changelog=False)

    def delete_tag(self, name: str) -> None:
        self._remove(f"tag/tag-{name}")

    def branch(self, name: str) -> None:
        """A branch at the newest snapshot of the main table."""
        if self.lines["main"].snapshot is not None and name not in self.lines:
            self.lines[name] = self.lines["main"].copy()
            under = self._under(name)
            self.put_json(f"{under}schema/schema-0", self.schema({}))
            number = self.lines[name].snapshot["id"]  # type: ignore[index]
            self._stand(f"{under}snapshot/snapshot-{number}", self.lines[name], changelog=True)

    def delete_branch(self, name: str) -> None:
        if name != "main" and name in self.lines:
            for key in [key for key in self.stored() if key.startswith(self._under(name))]:
                self._remove(key)
            del self.lines[name]

    def rollback(self, back: int) -> None:
        """The main table as it was some snapshots ago; the ids are used again."""
        line = self.lines["main"]
        target = line.next_id - 1 - back
        if f"snapshot/snapshot-{target}" not in self.standing() or target < 1:
            return
        for number in range(target + 1, line.next_id):
            self._remove(f"snapshot/snapshot-{number}")
        self.lines["main"] = self.states[f"snapshot/snapshot-{target}"].copy()
        self.put("snapshot/LATEST", str(target).encode())

    def consume(self, name: str, following: int) -> None:
        self.put_json(f"consumer/consumer-{name}", {"nextSnapshot": following})

    def stray(self, name: str, *, old: bool) -> str:
        """A file that nobody committed."""
        key = f"dt=a/bucket-0/data-{name}-{uuid.uuid4()}-0.orc"
        self.put(key, b"stray", self.now - timedelta(days=3 if old else 0))
        return key

    # How it is written down

    def commit(
        self,
        branch: str,
        *,
        adds: list[DataFile] | None = None,
        deletes: list[DataFile] | None = None,
        changelog: list[DataFile] | None = None,
        kind: str = "APPEND",
        merge: bool = False,
    ) -> None:
        line = self.lines[branch]
        line.changelog = frozenset()
        entries = [file.entry(1) for file in deletes or ()] + [file.entry(0) for file in adds or ()]
        base = self._merged(line) if merge else line.metas
        delta = [self._manifest(entries)] if entries else []
        for file in deletes or ():
            del line.live[file.name, file.level]
        for file in (*(adds or ()), *(changelog or ())):
            for key in file.places():
                if key not in self.stored():
                    self.put(key, b"data!")
        for file in adds or ():
            line.live[file.name, file.level] = file
            self.files.append(file)
        self.now += timedelta(seconds=1)
        document: dict[str, Any] = {
            "version": 3,
            "id": line.next_id,
            "schemaId": 0,
            "commitUser": self.stream or "model",
            "commitIdentifier": line.next_id if self.stream else 2**63 - 1,
            "commitKind": kind,
            "timeMillis": int(self.now.timestamp() * 1000),
            "totalRecordCount": sum(file.rows for file in line.live.values()),
            "deltaRecordCount": sum(file.rows for file in adds or ()) - sum(file.rows for file in deletes or ()),
        }
        for name, metas in (("base", base), ("delta", delta)):
            document[f"{name}ManifestList"], document[f"{name}ManifestListSize"] = self._list(metas)
        if changelog:
            meta = self._manifest([file.entry(0) for file in changelog])
            document["changelogManifestList"], document["changelogManifestListSize"] = self._list([meta])
            line.changelog = frozenset(
                [f"manifest/{document['changelogManifestList']}", f"manifest/{meta['_FILE_NAME']}"]
            ).union(*(file.places() for file in changelog))
        if line.index:
            document["indexManifest"] = self._index(line.index)
        line.snapshot, line.metas = document, [*base, *delta]
        self._stand(f"{self._under(branch)}snapshot/snapshot-{line.next_id}", line, changelog=True)
        self.put(f"{self._under(branch)}snapshot/LATEST", str(line.next_id).encode())
        line.next_id += 1

    def _stand(self, key: str, line: Line, *, changelog: bool) -> None:
        document = line.snapshot
        assert document is not None
        self.put_json(key, document)
        names = [
            document["baseManifestList"],
            document["deltaManifestList"],
            *(meta["_FILE_NAME"] for meta in line.metas),
        ]
        if document.get("indexManifest"):
            names.append(document["indexManifest"])
        needed = {f"manifest/{name}" for name in names} | {f"index/{name}" for name in line.index}
        needed |= {key for file in line.live.values() for key in file.places()}
        if changelog:
            needed |= line.changelog
        self.needs[key] = frozenset(needed)
        self.states[key] = line.copy()
        self.states[key].next_id = document["id"] + 1

    def _merged(self, line: Line) -> list[dict[str, Any]]:
        entries = [file.entry(0) for file in line.live.values()]
        return [self._manifest(entries)] if entries else []

    def _manifest(self, entries: list[dict[str, Any]]) -> dict[str, Any]:
        name, data = f"manifest-{uuid.uuid4()}-0", avro.write(MANIFEST_SCHEMA, entries)
        self.put(f"manifest/{name}", data)
        fields = [field["name"] for field in LIST_SCHEMA["fields"]]
        return list_record(name, len(data), entries, STRING, fields)

    def _list(self, metas: list[dict[str, Any]]) -> tuple[str, int]:
        name, data = f"manifest-list-{uuid.uuid4()}-0", avro.write(LIST_SCHEMA, metas)
        self.put(f"manifest/{name}", data)
        return name, len(data)

    def _index(self, names: set[str]) -> str:
        name = f"index-manifest-{uuid.uuid4()}-0"
        rows = [
            {
                "_VERSION": 1,
                "_KIND": 0,
                "_PARTITION": encode_row(["a"], STRING),
                "_BUCKET": 0,
                "_INDEX_TYPE": "HASH",
                "_FILE_NAME": one,
                "_FILE_SIZE": 5,
                "_ROW_COUNT": 1,
                "_EXTERNAL_PATH": None,
            }
            for one in sorted(names)
        ]
        self.put(f"manifest/{name}", avro.write(INDEX_SCHEMA, rows))
        return name

    def put_json(self, key: str, document: dict[str, Any]) -> None:
        self.put(key, json.dumps(document).encode())

    def put(self, key: str, data: bytes, modified_at: datetime | None = None) -> None:
        """Committed files look old: their age must not be what saves them."""
        held = Held(data=data, modified_at=modified_at or self.now - timedelta(days=3))
        self.bucket.objects[f"{self.place}/{key}"] = held

    def _remove(self, key: str) -> None:
        self.bucket.objects.pop(f"{self.place}/{key}", None)
        self.needs.pop(key, None)
        self.states.pop(key, None)

    def _under(self, branch: str) -> str:
        return "" if branch == "main" else f"branch/branch-{branch}/"
