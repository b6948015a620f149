"""The audit trail: what is recorded of a run that changes things, how it is written down, how it is chained. Pure.

A table has one chain of segments, numbered from 1 without a gap, since a table has one worker at a time. A segment
is a small object of JSON lines: a head, records, a seal. The head holds the digest of the segment before, the seal
that of the lines above it. So a changed, missing or exchanged segment shows; the state store remembers the newest
digest of each table, so a cut end shows too.

A batch is recorded before it is deleted (`delete`, `spare`) and after it (`deleted`, `already_gone`, `failed`). What
has no second record was interrupted: it may be gone or not, but it was never deleted without the first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import quote, unquote

from lakesweep.cleanup.records import Approval, BatchRecord
from lakesweep.cleanup.report import iso_utc
from lakesweep.model.access import Trigger
from lakesweep.model.files import Candidate
from lakesweep.model.location import Location
from lakesweep.model.run import CleanupRun
from lakesweep.model.snapshot import ExpiryPlan

VERSION = 1
"""Of the format. A field may be added, never renamed or removed."""

Record = dict[str, Any]
"""One line. `record` says what it tells."""


class Audit(Protocol):
    """Where one run records what it does. Every method raises AuditFailed if the record is not safely stored."""

    async def begin(self, run: CleanupRun) -> None:
        """The plan is checked and about to be executed."""
        ...

    async def expiring(self, plan: ExpiryPlan) -> None:
        """An expiry is about to be committed."""
        ...

    async def expired(self, plan: ExpiryPlan) -> None:
        """An expiry was committed."""
        ...

    async def deleting(self, batch: BatchRecord, going: Sequence[Candidate], spared: Sequence[Candidate]) -> None:
        """A batch is about to be deleted, except what was spared."""
        ...

    async def deleted(self, batch: BatchRecord, fates: Sequence[FileFate]) -> None:
        """What became of a batch."""
        ...

    async def end(self, run: CleanupRun) -> None:
        """The run is over; one that was refused before it began anything is recorded too."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFate:
    """What became of one file: `deleted`, `already_gone` or `failed` with what the store said."""

    path: str
    size_bytes: int
    fate: str
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a run does not know of itself."""

    trigger: Trigger
    worker: str
    fencing_token: int
    settings_digest: str
    version: str


class Broken(ValueError):
    """These bytes are not a segment as it was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One link of a table's chain."""

    table: str
    number: int
    previous: str | None
    """Digest of the segment before; None only for the first."""
    run_id: str
    at: datetime
    records: tuple[Record, ...]

    def encode(self) -> bytes:
        """Its bytes, for ever."""
        head = {
            "record": "segment",
            "version": VERSION,
            "table": self.table,
            "number": self.number,
            "previous": self.previous,
            "run_id": self.run_id,
            "at": iso_utc(self.at),
        }
        body = b"".join(map(_line, (head, *self.records)))
        return body + _seal(body)

    @classmethod
    def decode(cls, data: bytes) -> Segment:
        """Read a segment back, or raise Broken."""
        cut = data.rfind(b"\n", 0, -1) + 1
        body, seal = data[:cut], data[cut:]
        if not body or seal != _seal(body):
            raise Broken("its seal does not match: it was changed or cut")
        try:
            head, *records = map(json.loads, body.splitlines())
            if head["version"] != VERSION:
                raise Broken(f"it is of version {head['version']}, this program knows {VERSION}")
            return cls(
                table=head["table"],
                number=head["number"],
                previous=head["previous"],
                run_id=head["run_id"],
                at=datetime.fromisoformat(head["at"]),
                records=tuple(records),
            )
        except (KeyError, TypeError, ValueError) as exc:
            raise Broken(f"it is not a segment: {exc}") from exc


def digest(segment: bytes) -> str:
    """What the next segment and the state store remember of this one."""
    return hashlib.sha256(segment).hexdigest()


def _seal(body: bytes) -> bytes:
    return _line({"record": "seal", "sha256": hashlib.sha256(body).hexdigest()})


def _line(record: Record) -> bytes:
    # Plain ASCII: an object's key that is not UTF-8 survives too.
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


# What is recorded


def begin_record(run: CleanupRun, about: Circumstances, approvals: Iterable[Approval] = ()) -> Record:
    """Who set the run off, under which settings, on which plan it works, and who let which plan go."""
    plan = run.plan
    return {
        "record": "begin",
        "trigger": {"by": about.trigger.by.value, "who": about.trigger.who},
        "worker": about.worker,
        "fencing_token": about.fencing_token,
        "lakesweep": about.version,
        "settings": about.settings_digest,
        "format": run.table.format.value,
        "location": run.location,
        "approvals": [
            {
                "run_id": approval.run_id,
                "digest": approval.digest,
                "approved_by": approval.approved_by,
                "expires_at": iso_utc(approval.expires_at),
            }
            for approval in approvals
        ],
        "head": run.head,
        "started_at": iso_utc(run.started_at),
        "plan": plan
        and {
            "digest": plan.digest,
            "cutoff": iso_utc(plan.cutoff),
            "count": plan.candidates.files,
            "bytes": plan.candidates.bytes,
        },
    }


def expiry_record(record: str, plan: ExpiryPlan) -> Record:
    """Snapshots, refs and partitions that leave the table, or left it."""
    return {
        "record": record,
        "head": plan.head,
        "snapshots": [snapshot.id for snapshot in plan.expire],
        "refs": list(plan.drop_refs),
        "partitions": list(plan.partitions),
    }


def deleting_records(batch: BatchRecord, going: Iterable[Candidate], spared: Iterable[Candidate]) -> tuple[Record, ...]:
    """The decision on every file of a batch."""
    return (
        *(_decision("delete", batch, row) for row in going),
        *(_decision("spare", batch, row) for row in spared),
    )


def deleted_records(batch: BatchRecord, fates: Iterable[FileFate]) -> tuple[Record, ...]:
    """What became of every file of a batch."""
    return tuple(
        {
            "record": one.fate,
            "batch": batch.number,
            "path": one.path,
            "size_bytes": one.size_bytes,
            **({"why": one.why} if one.why else {}),
        }
        for one in fates
    )


def end_record(run: CleanupRun) -> Record:
    """How the run ended, in numbers."""
    return {
        "record": "end",
        "outcome": run.outcome.value if run.outcome else None,
        "reason": run.reason,
        "refused": run.refusal.code if run.refusal else None,
        "expired_snapshots": len(run.expired_snapshots),
        "deleted": {"count": run.deletion.deleted.files, "bytes": run.deletion.deleted.bytes},
        "already_gone": run.deletion.already_gone,
        "failed": len(run.deletion.failed),
        "spared": run.spared,
        "finished_at": iso_utc(run.finished_at),
    }


def _decision(record: str, batch: BatchRecord, row: Candidate) -> Record:
    return {
        "record": record,
        "batch": batch.number,
        "path": row.path,
        "size_bytes": row.size_bytes,
        "modified_at": iso_utc(row.modified_at),
        "etag": row.etag,
        "kind": row.kind,
        "reason": row.reason.value,
    }


# Where it is kept

_SUFFIX = ".jsonl"
_LONGEST_NAME = 200
"""Of a directory, in characters; file systems allow 255 bytes."""
_NOTHING = "%"
"""Stands for an empty part; quoting never writes a lone percent sign."""


def directory(artifacts: Location, table: str) -> Location:
    """`<artifacts>/audit/<tenant>/<dataset>/<table>`, each part quoted; a bare location has no tenant or dataset."""
    return artifacts.join("audit", *map(_quoted, _parts(table)))


def segment_place(artifacts: Location, table: str, number: int) -> Location:
    """Where a segment is. The name is its number alone, so that two writers cannot both have it."""
    return directory(artifacts, table).join(segment_name(number))


def segment_name(number: int) -> str:
    """Sorts by number."""
    return f"{number:010}{_SUFFIX}"


def segment_number(name: str) -> int | None:
    """The number that an object's name spells, if it is a segment's."""
    stem = name.removesuffix(_SUFFIX)
    return int(stem) if name.endswith(_SUFFIX) and stem.isdecimal() and stem.isascii() else None


def table_at(artifacts: Location, place: Location) -> str:
    """The table whose directory this is, as far as the name tells: a very long one is cut."""
    below = place.path.removeprefix(artifacts.join("audit").as_directory().path)
    return "/".join(unquote(part) for part in below.split("/") if part != _NOTHING)


def tenant_of(table: str) -> str:
    """The tenant in a table's label; empty for a bare location."""
    return _parts(table)[0]


def _parts(table: str) -> Sequence[str]:
    # The label of a bare location is its address: nothing stands between its first two slashes.
    parts = table.split("/", 2)
    return parts if len(parts) == 3 and all(parts[:2]) else ("", "", table)


def _quoted(part: str) -> str:
    text = quote(part, safe=" =@+,", errors="surrogatepass").replace("~", "%7E") or _NOTHING
    if set(text) == {"."}:
        return text.replace(".", "%2E")
    if len(text) > _LONGEST_NAME:
        return f"{text[:100]}~{hashlib.sha256(part.encode(errors='surrogatepass')).hexdigest()}"
    return text
