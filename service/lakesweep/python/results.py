"""The values that calls from Python return: columns, numbers and sentences, and the JSON document of `--json`.

Pure: built from a finished run and its rows. Text from outside is escaped where it becomes HTML.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from html import escape
from typing import Any, Generic, TypeVar, overload

import pyarrow as pa

from lakesweep.cleanup import report
from lakesweep.cleanup.explain import Explanation as _Explained
from lakesweep.model.run import CleanupRun
from lakesweep.model.units import counted, size

ORPHANS = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("modified_at", pa.timestamp("us", tz="UTC")),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
    ]
)
"""The columns of `orphans`."""

_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why nothing is done: a stable code of the runbook, and a sentence."""

    code: str
    reason: str

    def __str__(self) -> str:
        return f"{self.code}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The numbers of a plan or a run. `str(summary)` is a sentence."""

    snapshots: int
    """Snapshots to expire, or expired."""
    files: int
    """Files to delete, or deleted."""
    bytes: int
    verdicts: Mapping[str, int]
    """All listed files by verdict: live, young, reserved, foreign, orphan."""
    done: bool
    """False for a plan and a dry run: nothing was changed."""

    def __str__(self) -> str:
        if self.done:
            gone = f"{counted(self.files, 'file')} deleted ({size(self.bytes)})"
            return f"{counted(self.snapshots, 'snapshot')} expired, {gone}"
        return (
            f"{counted(self.snapshots, 'snapshot')} to expire, {counted(self.files, 'file')} to delete "
            f"({size(self.bytes)})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run of one table would do. Nothing was changed."""

    table: str
    format: str
    location: str | None
    orphans: pa.Table = field(repr=False)
    """The files that would be deleted: path, size_bytes, modified_at, kind, reason."""
    summary: Summary
    refused: Refusal | None
    """Set if a guard refused, or the table could not be read: then nothing would be deleted, whatever `orphans`
    contains."""
    document: Mapping[str, Any] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `plan --json` for this table, with all of its files."""
        files = [{**row, "modified_at": report.iso_utc(row["modified_at"])} for row in self.orphans.to_pylist()]
        return {**self.document, "orphans": {**self.document["orphans"], "files": files}}

    def _repr_html_(self) -> str:
        return _html(self.table, self.summary, self.refused, self.orphans)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a run of one table did."""

    table: str
    format: str
    location: str | None
    run_id: str
    outcome: str
    """`done`, `dry_run`, `refused` or `failed`."""
    reason: str | None
    orphans: pa.Table = field(repr=False)
    """The files of its plan."""
    summary: Summary
    refused: Refusal | None
    document: Mapping[str, Any] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `run --json` for this table."""
        return dict(self.document)

    def _repr_html_(self) -> str:
        return _html(f"{self.table}: {self.outcome}", self.summary, self.refused, self.orphans)


_Result = TypeVar("_Result", bound=Plan | Run)


class Results(Sequence[_Result], Generic[_Result]):
    """Several tables, in the order in which they were found."""

    def __init__(self, results: Sequence[_Result]) -> None:
        self._results = tuple(results)

    @overload
    def __getitem__(self, index: int) -> _Result: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[_Result]: ...
    def __getitem__(self, index: int | slice) -> _Result | Sequence[_Result]:
        return self._results[index]

    def __len__(self) -> int:
        return len(self._results)

    def __repr__(self) -> str:
        return f"Results({list(self._results)!r})"

    @property
    def orphans(self) -> pa.Table:
        """Of all tables."""
        return pa.concat_tables([one.orphans for one in self._results]) if self._results else ORPHANS.empty_table()

    @property
    def summary(self) -> Summary:
        """Of all tables."""
        verdicts: Counter[str] = Counter()
        for one in self._results:
            verdicts.update(one.summary.verdicts)
        return Summary(
            snapshots=sum(one.summary.snapshots for one in self._results),
            files=sum(one.summary.files for one in self._results),
            bytes=sum(one.summary.bytes for one in self._results),
            verdicts=dict(verdicts),
            done=any(one.summary.done for one in self._results),
        )

    @property
    def refused(self) -> dict[str, Refusal]:
        """The tables that a guard stopped or that could not be read, and why."""
        return {one.table: one.refused for one in self._results if one.refused is not None}

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `--json`."""
        return {"tables": [one.to_dict() for one in self._results]}

    def _repr_html_(self) -> str:
        return "".join(one._repr_html_() for one in self._results)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why one file stays, or from when it may be deleted."""

    path: str
    table: str
    verdict: str | None
    """None when storage has no such object."""
    evidence: tuple[str, ...]
    deletable_from: datetime | None

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `explain --json`."""
        until = report.iso_utc(self.deletable_from)
        return {**asdict(self), "evidence": list(self.evidence), "deletable_from": until}

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{escape(sentence)}</li>" for sentence in self.evidence)
        return f"<p><code>{escape(self.path)}</code>: <b>{escape(self.verdict or 'not stored')}</b></p><ul>{items}</ul>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What all configured tables store, and what could be deleted."""

    document: Mapping[str, Any] = field(repr=False)

    @property
    def summary(self) -> Mapping[str, Any]:
        """The numbers of all tables together."""
        totals: Mapping[str, Any] = self.document["totals"]
        return totals

    @property
    def tables(self) -> Sequence[Mapping[str, Any]]:
        """One entry per table: its bytes and files by verdict, what could be deleted, and what prevents that."""
        tables: Sequence[Mapping[str, Any]] = self.document["tables"]
        return tables

    @property
    def refused(self) -> dict[str, str]:
        """The tables that cannot be cleaned, and why."""
        return {table["table"]: table["problem"] for table in self.tables if table["problem"]}

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `report --json`."""
        return dict(self.document)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(table['table'])}</td><td>{size(table['waste_bytes'])}</td>"
            f"<td>{escape(table['problem'] or '')}</td></tr>"
            for table in self.tables
        )
        return f"<table><tr><th>table</th><th>deletable</th><th>in the way</th></tr>{rows}</table>"


def plan_of(run: CleanupRun, rows: pa.Table) -> Plan:
    """A plan from a finished dry run and its rows."""
    document = report.plan_document(run, ())
    expiring = len(document["expire"]["snapshots"])
    summary = _summary(expiring, document["orphans"], document["verdicts"], done=False)
    return Plan(**_of_any(run, document), orphans=rows, summary=summary)


def run_of(run: CleanupRun, rows: pa.Table, *, executed: bool) -> Run:
    """A run from its end and the rows of its plan."""
    document = report.run_document(run)
    done = executed and document["outcome"] != "dry_run"
    expiring = len(run.expiry.expire) if run.expiry else 0
    snapshots = len(document["expired_snapshots"]) if done else expiring
    verdicts = report.plan_document(run, ())["verdicts"]
    return Run(
        **_of_any(run, document),
        run_id=run.id,
        outcome=str(document["outcome"]),
        reason=document["reason"],
        orphans=rows,
        summary=_summary(snapshots, document["deleted"] if done else document["orphans"], verdicts, done=done),
    )


def _of_any(run: CleanupRun, document: Mapping[str, Any]) -> dict[str, Any]:
    found = document["refused"]
    return {
        "table": run.table.label,
        "format": run.table.format.value,
        "location": run.location,
        "refused": Refusal(code=found["code"], reason=found["reason"] or "") if found else None,
        "document": document,
    }


def _summary(snapshots: int, files: Mapping[str, Any], verdicts: Mapping[str, int], *, done: bool) -> Summary:
    sizes = {"files": files["count"], "bytes": files["bytes"]}
    return Summary(snapshots=snapshots, **sizes, verdicts=dict(verdicts), done=done)


def explanation_of(found: _Explained) -> Explanation:
    """As the command line shows it."""
    return Explanation(
        path=found.path,
        table=found.table.label,
        verdict=found.verdict.value if found.verdict else None,
        evidence=tuple(found.sentences),
        deletable_from=found.deletable_from,
    )


def _html(title: str, summary: Summary, refused: Refusal | None, rows: pa.Table) -> str:
    parts = [f"<p><b>{escape(title)}</b><br>{escape(str(summary))}</p>"]
    if refused is not None:
        parts.append(f"<p style='color:#b00'>refused: {escape(str(refused))}</p>")
    numbers = "".join(
        f"<tr><td>{escape(name)}</td><td>{number:,}</td></tr>" for name, number in summary.verdicts.items()
    )
    parts.append(f"<table><tr><th>verdict</th><th>files</th></tr>{numbers}</table>")
    first = rows.slice(0, _SHOWN).to_pylist()
    if first:
        cells = "".join(
            f"<tr><td>{escape(row['path'])}</td><td>{size(row['size_bytes'])}</td><td>{escape(row['kind'])}</td>"
            f"<td>{escape(row['reason'])}</td></tr>"
            for row in first
        )
        head = "<tr><th>path</th><th>size</th><th>kind</th><th>reason</th></tr>"
        parts.append(f"<table>{head}{cells}</table>")
    if rows.num_rows > len(first):
        parts.append(f"<p>… and {counted(rows.num_rows - len(first), 'more file')}</p>")
    return "".join(parts)
