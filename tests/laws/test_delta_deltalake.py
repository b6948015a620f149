"""The laws of a cycle over random histories that deltalake writes, with cycles between its commits.

Judged by deltalake itself: after every cycle it reads the same rows, and all files it takes for live are there.
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.builders.delta import LocalPlace, sweep
from tests.laws import examples

from lakesweep.model.run import Outcome

LAWS = settings(
    deadline=None,
    max_examples=examples(8, soak=200),
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.target),
)
STEPS = st.lists(
    st.sampled_from(
        (
            "append",
            "append",
            "append",
            "overwrite",
            "delete",
            "update",
            "compact",
            "restore",
            "checkpoint",
            "cycle",
            "orphan",
        )
    ),
    min_size=3,
    max_size=12,
)


def _rows(number: int, count: int = 3) -> pa.Table:
    values = [number * 10 + one for one in range(count)]
    return pa.table({"n": pa.array(values, pa.int64()), "p": pa.array([f"a {one % 2}%" for one in values])})


def _content(path: Path, version: int | None = None) -> list[tuple[int, str]]:
    rows = DeltaTable(str(path), version=version).to_pyarrow_table().to_pylist()
    return sorted((row["n"], row["p"]) for row in rows)


def _live(path: Path) -> set[Path]:
    return {Path(uri.removeprefix("file://")) for uri in DeltaTable(str(path)).file_uris()}


def play(path: Path, step: str, number: int, cleaned: bool) -> None:
    table = DeltaTable(str(path))
    match step:
        case "append" | "overwrite":
            write_deltalake(str(path), _rows(number), mode=step, partition_by=["p"])
        case "delete":
            table.delete(f"n % 3 = {number % 3}")
        case "update":
            table.update(predicate=f"n % 4 = {number % 4}", updates={"n": "n + 1"})
        case "compact":
            table.optimize.compact()
        case "restore":
            if not cleaned and table.version() > 1:
                table.restore(table.version() - 1)
        case "checkpoint":
            table.create_checkpoint()
        case "orphan":
            LocalPlace(path).put(f"part-{number}.parquet", b"orphan", datetime.now(UTC) - timedelta(days=60))


@LAWS
@given(STEPS, st.integers(1, 60))
async def test_deltalake_reads_the_same_rows_whatever_was_cleaned(steps, days):
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "lake" / "t"
        write_deltalake(str(path), _rows(0), partition_by=["p"], configuration={"delta.checkpointInterval": "4"})
        cleaned = False
        for number, step in enumerate([*steps, "cycle"], start=1):
            if step != "cycle":
                play(path, step, number, cleaned)
                continue
            before = _content(path)
            swept = await sweep(LocalPlace(path), now=datetime.now(UTC) + timedelta(days=days), execute=True)
            assert swept.run.outcome is Outcome.DONE, swept.run.reason
            assert _content(path) == before
            assert all(file.is_file() for file in _live(path))
            if days < 7:
                newest = DeltaTable(str(path)).version()
                for version in range(newest + 1):
                    _content(path, version)
            cleaned = cleaned or days >= 7
