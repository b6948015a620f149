"""The demo's lake is made of real tables: other programs read the same rows of them, before a cleanup and after."""

from __future__ import annotations

import asyncio
from pathlib import Path

from deltalake import DeltaTable
from tests.peers.paimon import PaimonPeer, shared_peer, shared_python_peer

from lakesweep.cli.demo import lake as demo_lake
from lakesweep.cli.demo.lake import DemoLake
from lakesweep.cli.demo.tables import Rows
from lakesweep.daemon.app import App
from lakesweep.model.files import Tally
from lakesweep.model.run import CleanupRun, Outcome
from lakesweep.model.table import FormatName
from lakesweep.settings.schema import Settings

VISITS, CLICKS, DAMAGED = "initech/web/visits", "initech/raw/clicks", "globex/iot/damaged"


def place(lake: DemoLake, label: str) -> Path:
    return lake.root / "initech" / {VISITS: "paimon/web.db/visits", CLICKS: "delta/clicks"}[label]


def expiring_partition(lake: DemoLake) -> Path:
    return min(place(lake, VISITS).glob("day=*"))


def by_paimon(lake: DemoLake, peer: PaimonPeer) -> Rows:
    def ids(**state: str) -> tuple[int, ...]:
        rows = peer("read", path=str(place(lake, VISITS)), **state)
        return tuple(sorted(int(row.partition("|")[0]) for row in rows))

    return {"newest": ids(), "tag before-import": ids(tag="before-import")}


def by_deltalake(lake: DemoLake) -> Rows:
    def ids(version: int | None) -> tuple[int, ...]:
        rows = DeltaTable(str(place(lake, CLICKS)), version=version).to_pyarrow_table()
        return tuple(sorted(rows.column("id").to_pylist()))

    return {"newest": ids(None), "version 6": ids(6)}


def by_others(lake: DemoLake) -> list[tuple[str, Rows]]:
    return [
        (CLICKS, by_deltalake(lake)),
        (VISITS, by_paimon(lake, shared_python_peer())),
        (VISITS, by_paimon(lake, shared_peer())),
    ]


async def cleaned(lake: DemoLake, state: Path) -> dict[str, CleanupRun]:
    settings = {**lake.settings, "engine": {"kind": "inprocess"}, "service": {"data_dir": state}}
    async with App.open(Settings.model_validate(settings)) as app:
        return {work.ref.label: await app.run(work, execute=True) for work in await app.resolve(None)}


def test_other_programs_read_what_the_demo_reads_before_and_after_a_cleanup(tmp_path: Path) -> None:
    lake = demo_lake.build(tmp_path / "lake")
    before = lake.rows()
    for label, rows in by_others(lake):
        assert rows == before[label]
    partition = [file.stat().st_size for file in expiring_partition(lake).rglob("*.parquet")]
    runs = asyncio.run(cleaned(lake, tmp_path / "state"))
    assert {label for label, run in runs.items() if run.outcome is not Outcome.DONE} == {DAMAGED}
    assert [path for planted in lake.planted.values() for path in planted if path.exists()] == []
    after = {table.label: table.expected(before[table.label]) for table in lake.tables}
    assert lake.rows() == after
    for label, rows in by_others(lake):
        assert rows == after[label]
    assert {run.table.format for run in runs.values() if run.expired_snapshots} == set(FormatName)
    expiry = runs[VISITS].expiry
    assert expiry is not None
    assert expiry.partitions == (expiring_partition(lake).name,)
    assert expiry.partition_files == Tally(files=len(partition), bytes=sum(partition))
