"""pypaimon as another program: it reads what we left, at every snapshot and tag, and commits on top."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.builders import paimon
from tests.builders.cycles import AlwaysOurs
from tests.builders.paimon_java import JavaTable, append
from tests.peers.paimon import shared_peer, shared_python_peer

from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import Outcome

FIELDS = [["k", "INT"], ["dt", "STRING"], ["v", "STRING"]]


@pytest.fixture
def python() -> Any:
    return shared_python_peer()


def made_by(peer: Any, warehouse: Path, **options: str) -> JavaTable:
    settings = {"partition_keys": ["dt"], "primary_keys": [], "options": {"bucket": "-1"} | options}
    location = peer("create", warehouse=str(warehouse), database="d", table="t", fields=FIELDS, **settings)
    table = JavaTable(path=Path(location), peer=peer)
    for number in range(4):
        table.write([number, "2020-01-01", "a"], [number, "2024-01-02", "b"])
    table.write([9, "2024-01-02", "new"], overwrite={"dt": "2024-01-02"})
    table.write([10, "2024-01-03", "c"])
    return table


async def test_tables_that_pypaimon_made_expire_and_stay_readable(python: Any, tmp_path: Path) -> None:
    table = made_by(python, tmp_path / "warehouse")
    table("tag", name="x", snapshot=2)
    before = {number: table("read", snapshot=number) for number in table.snapshots()}
    tagged = table("read", tag="x")
    run = await paimon.clean(table.path, paimon.bench(tmp_path, tmp_path / "scratch"), paimon.everything_old(2))
    assert run.outcome is Outcome.DONE, run.reason
    assert table.snapshots() == [5, 6]
    assert {number: table("read", snapshot=number) for number in (5, 6)} == {
        number: before[number] for number in (5, 6)
    }
    assert table("read", tag="x") == tagged
    table.write([11, "2024-01-04", "on top"])
    assert "11|2024-01-04|on top" in table("read")
    again = await paimon.clean(table.path, paimon.bench(tmp_path, tmp_path / "scratch"), paimon.everything_old())
    assert again.outcome is Outcome.DONE
    assert table("read", tag="x") == tagged


async def test_pypaimon_reads_after_dropped_partitions_and_merges(python: Any, tmp_path: Path) -> None:
    options = {"partition.expiration-time": "1800 d", "partition.expiration-check-interval": "0 ms"}
    table = made_by(python, tmp_path / "warehouse", **options)
    on = paimon.bench(tmp_path, tmp_path / "scratch")
    run = await paimon.clean(table.path, on, CleanupPolicy(dry_run=False))
    assert run.expired_partitions == ("dt=2020-01-01",)
    assert table("read") == ["10|2024-01-03|c", "9|2024-01-02|new"]
    assert await paimon.table_at(table.path, on).compact_manifests(on.clock.now(), AlwaysOurs())
    assert table("read") == ["10|2024-01-03|c", "9|2024-01-02|new"]
    assert table("read", filter=["dt", "2024-01-02"]) == ["9|2024-01-02|new"]
    assert table("read", filter=["dt", "2020-01-01"]) == []
    table.write([12, "2024-01-02", "on top"])
    assert table("read", filter=["dt", "2024-01-02"]) == ["12|2024-01-02|on top", "9|2024-01-02|new"]


async def test_java_and_pypaimon_read_the_same_after_all_of_it(python: Any, tmp_path: Path) -> None:
    java = shared_peer()
    table = append(java, tmp_path / "warehouse")
    other = JavaTable(path=table.path, peer=python)
    table("tag", name="x", snapshot=3)
    on = paimon.bench(tmp_path, tmp_path / "scratch")
    assert await paimon.table_at(table.path, on).compact_manifests(on.clock.now(), AlwaysOurs())
    table(
        "alter",
        options={
            "partition.expiration-time": "0 ms",
            "partition.expiration-check-interval": "0 ms",
            "partition.expiration-max-num": "1",
        },
    )
    await paimon.clean(table.path, on, paimon.everything_old())
    assert table("read") == other("read")
    assert table("read", tag="x") == other("read", tag="x")
    other.write([70, "2024-02-01", "python"])
    assert "70|2024-02-01|python" in table("read")


async def test_orphans_beside_a_table_of_pypaimon_go(python: Any, tmp_path: Path) -> None:
    table = made_by(python, tmp_path / "warehouse")
    paimon.age(table.path)
    planted = paimon.plant(table.path, "dt=2024-01-02/bucket-0/data-stray-0.parquet", "manifest/index-manifest-stray")
    rows = table("read")
    run = await paimon.clean(
        table.path,
        paimon.bench(tmp_path, tmp_path / "scratch"),
        CleanupPolicy(dry_run=False, max_snapshot_age=timedelta(days=99)),
    )
    assert run.deletion.deleted.files == 2
    assert not any(file.exists() for file in planted)
    assert table("read") == rows
