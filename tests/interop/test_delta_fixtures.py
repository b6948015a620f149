"""Tables that Spark and other writers left behind: nothing live is a candidate, planted orphans are exactly found.

Which files a table has is counted by a reader that shares nothing with the product.
"""

from __future__ import annotations

import os
import tarfile
from datetime import timedelta
from pathlib import Path

import pytest
from tests.builders.delta import NOW, LocalPlace, days_ago, sweep
from tests.peers.delta_reader import rebuild

from lakesweep.model.policy import CleanupPolicy, OnMissing
from lakesweep.model.run import Outcome

ARCHIVE = Path(__file__).resolve().parents[3] / "shared" / "fixtures" / "delta-spark-tables.tar.gz"
REFUSED = {
    "golden/collations-preview-table": ("unsupported_feature", "collations-preview"),
    "rs/table_with_liquid_clustering": ("unsupported_feature", "liquid"),
    "golden/deltalog-state-reconstruction-without-metadata": ("indeterminate", "no metadata"),
}
ELSEWHERE = {"golden/canonicalized-paths-normal-b", "golden/canonicalized-paths-special-b"}
"""Their logs name live files by absolute paths of another machine."""
DAMAGED = {
    # The archives of these tables lack some or all of their live data files.
    "golden/delete-re-add-same-file-different-transactions",
    "golden/deltalog-state-reconstruction-from-checkpoint-missing-metadata",
    "golden/update-deleted-directory",
    "rs/checkpoints",
    "rs/latest_not_checkpointed",
    "rs/spark-variant-stable-feature-checkpoint",
}


def _names() -> list[str]:
    if not ARCHIVE.is_file():
        return []
    with tarfile.open(ARCHIVE) as archive:
        found = {name.partition("/_delta_log/")[0] for name in archive.getnames() if "/_delta_log/" in name}
    return sorted("/".join(name.split("/")[-2:]) for name in found)


TABLES = _names()
pytestmark = pytest.mark.skipif(not TABLES, reason="the archive of tables is not here")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("tables")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(home, filter="data")
    return home / "delta"


@pytest.fixture
def table(unpacked: Path, request: pytest.FixtureRequest) -> LocalPlace:
    """One of the tables, every file forty days old."""
    path = unpacked / request.param
    for file in path.rglob("*"):
        if file.is_file():
            os.utime(file, (days_ago(40).timestamp(), days_ago(40).timestamp()))
    return LocalPlace(path)


def _going_by_name(name: str, partition_columns: tuple[str, ...]) -> bool:
    """A data file, a deletion vector or change data, in no hidden place."""
    hidden = [
        part
        for part in name.split("/")
        if part[0] in "_." and not part.startswith(("_change_data", *(f"{one}=" for one in partition_columns)))
    ]
    return name.endswith((".parquet", ".bin")) and not hidden


@pytest.mark.parametrize("table", [name for name in TABLES if name not in REFUSED], indirect=True)
async def test_nothing_live_is_a_candidate_and_planted_orphans_are_exactly_found(table, request):
    name = request.node.callspec.params["table"]
    policy = CleanupPolicy(on_missing=OnMissing.REPORT if name in DAMAGED | ELSEWHERE else OnMissing.REFUSE)
    live = rebuild(table.path)
    partitioned = next((one.rpartition("/")[0] for one in live if "=" in one), "k=1")
    planted = {"part-planted.parquet", f"{partitioned}/part-planted.parquet"}
    for one in planted:
        table.put(one, b"orphan", days_ago(40))
    table.put("part-young.parquet", b"orphan", NOW - timedelta(days=6))
    swept = await sweep(table, policy=policy)
    assert swept.run.refusal is None, swept.run.reason
    assert not swept.data & live
    columns = tuple({part.partition("=")[0] for one in live | swept.data for part in one.split("/")[:-1]})
    dead = {one for one in table.names() - live if _going_by_name(one, columns)}
    assert swept.data == dead - {"part-young.parquet"}
    assert planted <= swept.data
    done = await sweep(table, policy=policy, execute=True)
    assert done.run.outcome is Outcome.DONE, done.run.reason
    assert rebuild(table.path) == live
    assert (live <= table.names()) is (name not in DAMAGED)
    assert not (await sweep(table, policy=policy)).names


@pytest.mark.parametrize("table", sorted(DAMAGED & set(TABLES)), indirect=True)
async def test_tables_without_their_live_files_are_refused(table):
    before = table.names()
    swept = await sweep(table, execute=True)
    assert swept.run.refusal.code == "missing_live_files"
    assert swept.run.plan.missing_count == len(rebuild(table.path) - before)
    assert table.names() == before


@pytest.mark.parametrize("table", sorted(set(REFUSED) & set(TABLES)), indirect=True)
async def test_tables_that_are_not_understood_are_refused_for_the_right_reason(table, request):
    code, why = REFUSED[request.node.callspec.params["table"]]
    before = table.names()
    swept = await sweep(table, execute=True)
    assert swept.run.refusal.code == code
    assert why in swept.run.reason
    assert table.names() == before
