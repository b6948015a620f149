"""Run the relational plan over one table's spilled relations with DuckDB. Blocking: it runs in a worker thread.

Everything that grows with the table stays on disk; DuckDB joins and sorts within its memory limit and spills beyond it.
Reads and writes only its scratch directory and the plan's own file.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from lakesweep.cleanup import classify, plan_file
from lakesweep.engines import fingerprints
from lakesweep.engines.common import statements
from lakesweep.engines.scratch import scratch_writer
from lakesweep.model.files import Reason, Tally, Verdict
from lakesweep.ports.table import Layout

SEEN_SCHEMA = pa.schema([pa.field("match_key", pa.string(), nullable=False)])

_BATCH_ROWS = 65_536
_KEPT_FREE = "8MB"
"""Unused memory is returned to the system only above this amount. DuckDB's default is sixteen times as much."""

_CLOSE_SECONDS = 30.0
_CLOSE_AGAIN_SECONDS = 0.02

_INVENTORY = """
SELECT *, fingerprint(match_key) AS print
FROM (SELECT path, coalesce(match_key, path) AS match_key, size_bytes, modified_at, etag FROM {file})
"""
_REFS = """
SELECT role, address, CASE WHEN address IS NULL THEN match_key END AS bare, coalesce(match_key, address) AS match_key,
       inside, outside, guarded_name
FROM {files}
"""
_PRINTS = """
SELECT print, max(inside) AS inside
FROM (SELECT print, inside FROM ({held}) UNION ALL SELECT print, inside FROM stand_ins)
GROUP BY print
"""
"""The plan's `prints`, and those of sources that are here as fingerprints only."""
CONTRADICTIONS = (
    "SELECT count(*) FROM lost ANTI JOIN held USING (print)",
    "SELECT count(*) FROM held ANTI JOIN prints USING (print)",
)
"""Where fingerprints and what was recalled do not agree: something that is lost and not spelled, or the reverse."""
INCOMPLETE = "SELECT DISTINCT source FROM stand_ins SEMI JOIN lost USING (print) WHERE inside ORDER BY source"
"""Sources of which something was not listed, and of which only fingerprints are here to say what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The plan's numbers and examples, without its rows."""

    verdicts: dict[Verdict, Tally]
    by_kind: dict[str, Tally]
    by_reason: dict[Reason, Tally]
    references: int
    missing: tuple[str, ...]
    missing_count: int
    missing_clash: tuple[str, ...]
    unverified: int
    unverified_first: str | None
    unverified_shown: tuple[str, ...]
    unreferenced_metadata: tuple[str, ...]


class Detection:
    """One table's relations. Call `judge`, `find_lost`, recall what it names if it names any, then `explain_lost`;
    `find_suspects`, look again, `confirm` and `write_rows`."""

    def __init__(self, scratch: Path, *, memory_limit: str, threads: int) -> None:
        self.inventory = scratch / "inventory.parquet"
        self.refs = scratch / "refs.parquet"
        self.stand_ins = scratch / "stand_ins.parquet"
        self.recalled = scratch / "recalled.parquet"
        self.seen = scratch / "seen.parquet"
        self._judged = scratch / "judged.parquet"
        self._stopped = threading.Event()
        self._db = duckdb.connect(
            config={
                "memory_limit": memory_limit,
                "temp_directory": str(scratch / "duckdb"),
                "threads": threads,
                "allocator_flush_threshold": _KEPT_FREE,
                "preserve_insertion_order": False,
                "autoinstall_known_extensions": False,
                "TimeZone": "UTC",
            }
        )

    def judge(self, layout: Layout, cutoff: datetime) -> None:
        """Join what is stored with what is referenced and judge the rest."""
        self._execute(f"CREATE MACRO fingerprint(text) AS {fingerprints.EXPRESSION}")
        self._view("inventory", _INVENTORY.format(file=_parquet(self.inventory)))
        self._view("refs", _REFS.format(files=_parquet(self.refs)))
        self._view("stand_ins", f"FROM {_parquet(self.stand_ins)}")
        self._table("released")
        self._view("held", statements()["held"])
        self._execute(f"CREATE TABLE prints AS {_PRINTS.format(held=statements()['prints'])}")
        unreferenced = self._stream("unreferenced", classify.UNREFERENCED_SCHEMA)
        self.take_judged(classify.judge_batch(rows, layout, cutoff) for rows in unreferenced)

    def take_judged(self, verdicts: Iterable[pa.RecordBatch]) -> None:
        """Verdicts as JUDGED_SCHEMA, made here or elsewhere: all that `ask` and `write_rows` need."""
        with scratch_writer(self._judged, classify.JUDGED_SCHEMA) as writer:
            for rows in verdicts:
                writer.write_batch(rows)
        self._view("judged", f"FROM {_parquet(self._judged)}")

    def find_lost(self) -> list[int]:
        """Sources with unlisted references of which only the fingerprints are known."""
        self._table("lost")
        return [number for (number,) in self._all(INCOMPLETE)]

    def look_for_none(self) -> None:
        """Used instead of all this when an unlisted file does not count as missing."""
        self._execute("CREATE TABLE suspects (match_key VARCHAR, path VARCHAR)")
        with scratch_writer(self.seen, SEEN_SCHEMA):
            pass

    def explain_lost(self) -> bool:
        """Take the references that were read again. Do they name every missing file, and none that the fingerprints do
        not know? If not, the fingerprints did not belong to these sources, and nothing they say counts."""
        self._view("refs", _REFS.format(files=_parquet(self.refs, self.recalled)))
        return not any(self._one(query)[0] for query in CONTRADICTIONS)

    def find_suspects(self) -> int:
        """The number of references that should have been listed and were not."""
        self._table("suspects")
        return int(self._one("SELECT count(*) FROM suspects")[0])

    def suspects(self) -> list[tuple[str, str]]:
        """Match key and address (or bare name) of every suspect."""
        return self._all("SELECT match_key, path FROM suspects")

    def confirm(self) -> Findings:
        """Take out of the suspects what `seen` found, and count everything."""
        self._view("seen", f"FROM {_parquet(self.seen)}")
        self._view("missing", statements()["missing"])
        verdicts, by_kind, by_reason = tallied(self.ask("tallies"))
        files, size = self._one(statements()["totals"])
        judged = sum(verdicts.values(), Tally())
        verdicts[Verdict.LIVE] = Tally(files=files - judged.files, bytes=int(size) - judged.bytes)
        unverified, first = self._one(statements()["unverified"])
        return Findings(
            verdicts=verdicts,
            by_kind=by_kind,
            by_reason=by_reason,
            references=int(self._one(statements()["references"])[0]),
            missing=self._texts("missing_shown"),
            missing_count=int(self._one(statements()["missing_count"])[0]),
            missing_clash=self._texts("missing_clash"),
            unverified=int(unverified),
            unverified_first=first,
            unverified_shown=self._texts("unverified_shown") if unverified else (),
            unreferenced_metadata=self._texts("unreferenced_metadata"),
        )

    def write_rows(self, rows_path: str) -> str:
        with plan_file.PlanWriter(rows_path) as plan:
            for rows in self._stream("rows", plan_file.PLAN_SCHEMA):
                plan.write(rows)
        return plan.digest

    def cancel(self) -> None:
        """Make the running call end soon. May be called from another thread."""
        self._stopped.set()
        self._db.interrupt()

    def close(self) -> None:
        """End a call that still runs in another thread, and then the database."""
        end = time.monotonic() + _CLOSE_SECONDS
        while True:
            self.cancel()
            try:
                return self._db.close()
            except duckdb.ResourceInUseException:
                if time.monotonic() > end:
                    raise
                time.sleep(_CLOSE_AGAIN_SECONDS)

    def ask(self, name: str) -> list[Any]:
        """All rows of the statement of that name. Only for few."""
        return self._all(statements()[name])

    def _table(self, name: str) -> None:
        self._execute(f"CREATE TABLE {name} AS {statements()[name]}")

    def _view(self, name: str, query: str) -> None:
        self._execute(f"CREATE OR REPLACE VIEW {name} AS {query}")

    def _stream(self, name: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for batch in self._db.sql(statements()[name]).to_arrow_reader(_BATCH_ROWS):
            self._check_stopped()
            yield batch.cast(schema)

    def _all(self, query: str) -> list[Any]:
        return self._execute(query).fetchall()

    def _execute(self, query: str) -> duckdb.DuckDBPyConnection:
        self._check_stopped()
        return self._db.execute(query)

    def _check_stopped(self) -> None:
        """Before every query: DuckDB ignores an interrupt between two queries."""
        if self._stopped.is_set():
            raise duckdb.InterruptException("cancelled")

    def _one(self, query: str) -> tuple[Any, ...]:
        row: tuple[Any, ...] = self._all(query)[0]
        return row

    def _texts(self, name: str) -> tuple[str, ...]:
        return tuple(text for (text,) in self._all(statements()[name]))


def tallied(
    rows: Iterable[tuple[Any, ...]],
) -> tuple[dict[Verdict, Tally], dict[str, Tally], dict[Reason, Tally]]:
    """The rows of `tallies`: by verdict, and those with a reason by kind and by reason."""
    verdicts = dict.fromkeys(Verdict, Tally())
    by_kind: dict[str, Tally] = {}
    by_reason: dict[Reason, Tally] = {}
    for name, kind, reason, files, size in rows:
        tally = Tally(files=files, bytes=int(size))
        verdicts[Verdict(name)] += tally
        if reason is not None:
            by_kind[kind] = by_kind.get(kind, Tally()) + tally
            by_reason[Reason(reason)] = by_reason.get(Reason(reason), Tally()) + tally
    return verdicts, by_kind, by_reason


def _parquet(*paths: Path) -> str:
    # A data directory may have any name; characters of a glob must not act as one.
    literals = ", ".join("'" + re.sub(r"([*?\[])", r"[\1]", str(path).replace("'", "''")) + "'" for path in paths)
    return f"read_parquet([{literals}])"
