"""The laws of a cycle over random histories that deltalake writes, with cycles between its commits.

Judged by deltalake itself: after every cycle it reads the same rows, and all files it takes for live are there.
"""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from tests.builders.delta import DeltaWriter, LocalPlace, look, sweep
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


SPELLINGS = {
    "d=é/x.parquet": ("d=é/x.parquet", "d=%C3%A9/x.parquet"),
    "d=a b/x.parquet": ("d=a b/x.parquet", "d=a%20b/x.parquet"),
    "d=e%3Af/x.parquet": ("d=e%253Af/x.parquet",),
    "k=1/x.parquet": ("k=1/x.parquet", "k=1//x.parquet", "k%3D1/x.parquet"),
}
"""Stored files, and how logs may spell them."""
ACTIONS = st.tuples(
    st.sampled_from(("add", "add", "remove")), st.sampled_from([one for ways in SPELLINGS.values() for one in ways])
)


@LAWS
@given(st.lists(ACTIONS | st.none(), max_size=12))
@example([("add", "d=é/x.parquet"), ("remove", "d=%C3%A9/x.parquet")])
@example([("add", "k=1//x.parquet"), None, ("add", "k=1/x.parquet"), ("remove", "k=1/x.parquet")])
async def test_we_hold_for_live_what_deltalake_reads_however_it_is_spelled(actions):
    """One action to a commit, or none: then a checkpoint."""
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "t"
        write_deltalake(str(path), pa.table({"n": pa.array([-1], pa.int64())}))
        for number, name in enumerate(SPELLINGS):
            (path / name).parent.mkdir()
            pq.write_table(pa.table({"n": pa.array([number], pa.int64())}), path / name)
            size = (path / name).stat().st_size
        body = {"partitionValues": {}, "size": size, "modificationTime": 1, "deletionTimestamp": 1, "dataChange": True}
        version = 0
        for action in actions:
            if action is None:
                DeltaTable(str(path)).create_checkpoint()
                continue
            version += 1
            said = json.dumps({action[0]: {"path": action[1], **body}}, ensure_ascii=False)
            (path / "_delta_log" / f"{version:020d}.json").write_text(said)
        read = set(DeltaTable(str(path)).to_pyarrow_table()["n"].to_pylist())
        live = {name.replace("//", "/") for name in (await look(DeltaWriter(LocalPlace(path)))).live_data}
        assert {number for number, name in enumerate(SPELLINGS) if name in live} == read - {-1}
