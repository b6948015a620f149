"""A lite vacuum: the log alone says what may go, and the table is never listed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import structlog
from tests.builders.cycles import Bench, SetClock
from tests.builders.delta import NOW, DeltaWriter, LocalPlace, days_ago, open_table, stored_vector, sweep

from lakesweep.cleanup import without_listing
from lakesweep.formats.delta.table import DeltaOptions, VacuumMode
from lakesweep.model.errors import Denied
from lakesweep.model.location import Location
from lakesweep.model.policy import Ceilings, CleanupPolicy
from lakesweep.model.run import ListingMode, Outcome
from lakesweep.storage.local.store import LocalStorage

VECTOR = "vBn[lx{q8@P<9BNH/isA"
VECTOR_FILE = "deletion_vector_61d16c75-6994-46b7-a15b-8b538852e50e.bin"
LITE = DeltaOptions(vacuum_mode=VacuumMode.LITE)
LONG_LOG = {"delta.logRetentionDuration": "interval 99 days"}


@pytest.fixture
def place(tmp_path: Path) -> LocalPlace:
    return LocalPlace(tmp_path / "lake" / "t")


def _writer(place: LocalPlace, **more) -> DeltaWriter:
    writer = DeltaWriter(place, **{"configuration": LONG_LOG, **more})
    writer.create(days_ago(40))
    return writer


class Watched(Bench):
    """A bench that remembers which places were listed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.listed: list[str] = []

    @property
    def storage(self):
        inner = super().storage

        def listing(root: Location):
            self.listed.append(root.raw)
            return inner.list(root)

        return _With(inner, list=listing)


class _With:
    def __init__(self, inner, **own) -> None:
        self._inner, self._own = inner, own

    def __getattr__(self, name: str):
        return self._own.get(name) or getattr(self._inner, name)


def watched(place: LocalPlace) -> Watched:
    home = place.path.parent
    return Watched(root=home, clock=SetClock(NOW), scratch=home.parent / "scratch")


@pytest.mark.parametrize("kind", ["classic", "multipart", "v2-json", None])
async def test_exactly_what_the_log_has_freed_goes_and_a_second_run_finds_nothing(place, kind):
    writer = _writer(place, features=("deletionVectors", "v2Checkpoint"))
    place.put(VECTOR_FILE, b"vector", days_ago(39))
    place.put("_change_data/cdc.parquet", b"", days_ago(39))
    place.put("_change_data/late.parquet", b"", days_ago(39))
    writer.add("a.parquet", "b.parquet", "c.parquet", "again.parquet", at=days_ago(39))
    writer.add("v.parquet", at=days_ago(39), vector=stored_vector(VECTOR))
    writer.commit([{"cdc": {"path": "_change_data/cdc.parquet", "partitionValues": {}, "size": 1}}], days_ago(39))
    writer.remove("a.parquet", "v.parquet", "again.parquet", at=days_ago(38))
    if kind:
        writer.checkpoint(kind, at=days_ago(37))
    writer.remove("b.parquet", at=days_ago(36))
    writer.add("again.parquet", at=days_ago(35), write=False)
    writer.remove("c.parquet", at=days_ago(1))
    writer.commit([{"cdc": {"path": "_change_data/late.parquet", "partitionValues": {}, "size": 1}}], days_ago(1))
    place.put("never-committed.parquet", b"", days_ago(60))
    freed = {"a.parquet", "b.parquet", "v.parquet", VECTOR_FILE, "_change_data/cdc.parquet"}
    swept = await sweep(place, options=LITE, execute=True)
    assert swept.run.outcome is Outcome.DONE, swept.run.reason
    assert swept.data == freed
    assert {row.size_bytes for name, row in swept.planned.items() if name == "a.parquet"} == {4}
    assert not freed & place.names()
    assert not (await sweep(place, options=LITE)).data
    assert (await sweep(place)).data == {"never-committed.parquet", "_change_data/late.parquet"}


async def test_the_table_is_never_listed(place):
    writer = _writer(place)
    writer.add(*(f"{number}.parquet" for number in range(30)), at=days_ago(39))
    writer.remove("1.parquet", at=days_ago(38))
    bench = watched(place)
    swept = await sweep(place, options=LITE, execute=True, bench=bench)
    assert swept.data == {"1.parquet"}
    below = {path.removeprefix(f"{place.location.raw}/").rstrip("/") for path in bench.listed}
    assert below == {"_delta_log", "metadata", ".hoodie", "schema"}
    assert swept.run.plan.missing_count == 0
    full = watched(place)
    await sweep(place, bench=full)
    assert f"{place.location.raw}/" in full.listed


async def test_an_absent_live_file_is_not_missed_since_nobody_looked_for_it(place):
    writer = _writer(place)
    writer.add("gone.parquet", at=days_ago(39), write=False)
    writer.checkpoint(at=days_ago(38))
    writer.add("gone-too.parquet", "a.parquet", at=days_ago(38), write=False)
    place.put("a.parquet", b"", days_ago(38))
    writer.remove("a.parquet", at=days_ago(37))
    swept = await sweep(place, options=LITE, execute=True)
    assert swept.run.outcome is Outcome.DONE, swept.run.reason
    assert swept.data == {"a.parquet"}


async def test_a_cycle_that_lists_after_all_misses_an_absent_live_file(place, monkeypatch):
    """It was to go by names, found too many of them, and is no lite vacuum then."""
    writer = _writer(place)
    writer.add("a.parquet", "b.parquet", "live.parquet", at=days_ago(39))
    writer.remove("a.parquet", "b.parquet", at=days_ago(38))
    writer.checkpoint(at=days_ago(37))
    bench = watched(place)

    async def run(listing):
        table = open_table(writer, bench.storage, bench.clock)
        return await bench.run(table, CleanupPolicy(), execute=False, listing=listing)

    assert (await run(ListingMode.ALWAYS)).refusal is None
    assert (await run(ListingMode.NEVER)).plan.listed is False
    monkeypatch.setattr(without_listing, "_MOST_NAMES", 2)
    assert (await run(ListingMode.NEVER)).plan.listed is False
    monkeypatch.setattr(without_listing, "_MOST_NAMES", 1)
    place.delete("live.parquet")
    for why in ("a listing costs less", "was refused"):
        listed = await run(ListingMode.NEVER)
        assert (listed.plan.listed, why in listed.listed_because) == (True, True)
        assert listed.refusal.code == "missing_live_files"


async def test_what_is_committed_after_the_plan_is_spared_as_in_a_full_vacuum(place):
    writer = _writer(place)
    writer.add("a.parquet", "b.parquet", at=days_ago(39))
    writer.remove("a.parquet", "b.parquet", at=days_ago(38))

    bench = watched(place)
    table = open_table(writer, bench.storage, bench.clock, LITE)
    head = table.head

    async def head_after_restore():
        if writer.version < 3:
            writer.add("a.parquet", write=False)
        return await head()

    table.head = head_after_restore
    run = await bench.run(table, CleanupPolicy())
    assert run.spared == 1
    assert {"a.parquet"} == place.names() & {"a.parquet", "b.parquet"}


async def test_a_commit_that_cannot_be_read_frees_nothing(place):
    writer = _writer(place)
    writer.add("a.parquet", "b.parquet", at=days_ago(39))
    writer.remove("a.parquet", at=days_ago(38))
    writer.checkpoint(at=days_ago(37), hint=False)
    writer.log(f"{2:020d}.json", b"{", days_ago(38))
    assert not (await sweep(place, options=LITE)).data


async def test_a_removal_below_the_checkpoint_frees_its_file_on_time(place):
    """A writer with a shorter retention, or one that keeps no tombstones, wrote the checkpoint."""
    writer = _writer(place)
    writer.add("a.parquet", "b.parquet", at=days_ago(39))
    writer.remove("a.parquet", at=days_ago(38))
    writer.remove("b.parquet", at=days_ago(1))
    writer.tombstones.clear()
    writer.checkpoint(at=days_ago(1))
    assert (await sweep(place, options=LITE)).data == {"a.parquet"}


async def test_a_candidate_that_storage_does_not_answer_for_stops_the_plan(place):
    writer = _writer(place)
    writer.add("a.parquet", at=days_ago(39))
    writer.remove("a.parquet", at=days_ago(38))

    class Denying(Watched):
        @property
        def storage(self):
            inner = super().storage

            async def stat(location: Location):
                if location.name == "a.parquet":
                    raise Denied(location.raw, "no")
                return await inner.stat(location)

            return _With(inner, stat=stat)

    home = place.path.parent
    bench = Denying(root=home, clock=SetClock(NOW), scratch=home.parent / "scratch")
    run = (await sweep(place, options=LITE, bench=bench)).run
    assert run.outcome is Outcome.FAILED
    assert run.plan is None


@pytest.mark.parametrize("mode", VacuumMode)
@pytest.mark.parametrize("name", [f"{0:020}.json", f"{2:020}.checkpoint.", "_sidecars/"])
async def test_a_log_that_may_not_be_read_makes_the_table_indeterminate(place, name, mode, monkeypatch):
    writer = _writer(place, features=("v2Checkpoint",))
    writer.add("a.parquet", "b.parquet", at=days_ago(39))
    writer.remove("a.parquet", at=days_ago(38))
    if "." not in name or "checkpoint" in name:
        writer.checkpoint("v2-parquet", at=days_ago(38))
    whole = LocalStorage.read

    async def read(self, location, limit=None):
        if name in location.raw:
            raise Denied(location.raw, "no")
        return await whole(self, location, limit)

    monkeypatch.setattr(LocalStorage, "read", read)
    run = (await sweep(place, options=DeltaOptions(vacuum_mode=mode), execute=True)).run
    assert (run.outcome, run.refusal and run.refusal.code) == (Outcome.FAILED, "indeterminate")
    assert {"a.parquet", "b.parquet"} <= place.names()


@pytest.mark.parametrize(
    "sign",
    [
        "inner/_delta_log/00000000000000000000.json",
        "inner/deep/_delta_log/00000000000000000000.json",
        "inner/metadata/v1.metadata.json",
        ".hoodie/hoodie.properties",
        "inner/.hoodie/hoodie.properties",
        "schema/schema-0",
        "inner/schema/schema-0",
    ],
)
async def test_another_table_around_a_candidate_stops_it_as_in_a_full_vacuum(place, sign):
    """A directory that was converted to this table as a whole, with another table in it: what is removed here since is
    live there."""
    writer = _writer(place)
    writer.add("inner/deep/a.parquet", "b.parquet", at=days_ago(39))
    writer.remove("inner/deep/a.parquet", "b.parquet", at=days_ago(38))
    place.put(sign, b"{}", days_ago(39))
    swept = await sweep(place, options=LITE, execute=True)
    assert swept.run.refusal.code == "foreign_table"
    assert {"inner/deep/a.parquet", "b.parquet"} <= place.names()
    assert (await sweep(place)).run.refusal.code == "foreign_table"


async def test_hudis_metadata_is_no_other_table_while_uniform_writes_it(place):
    writer = _writer(place, configuration={**LONG_LOG, "delta.universalFormat.enabledFormats": "hudi"})
    writer.add("a.parquet", at=days_ago(39))
    writer.remove("a.parquet", at=days_ago(38))
    place.put(".hoodie/hoodie.properties", b"", days_ago(39))
    assert (await sweep(place, options=LITE)).data == {"a.parquet"}


@pytest.mark.parametrize(
    ("record", "freed"),
    [
        (None, {"a.parquet", "b.parquet"}),
        ({"latestCommitVersionOutsideOfRetentionWindow": 2}, {"b.parquet"}),
        ({"latestCommitVersionOutsideOfRetentionWindow": None}, {"a.parquet", "b.parquet"}),
        ("damaged", {"a.parquet", "b.parquet"}),
    ],
)
async def test_a_vacuum_on_record_is_not_repeated(place, record, freed):
    writer = _writer(place)
    writer.add("a.parquet", "b.parquet", at=days_ago(39))
    writer.remove("a.parquet", at=days_ago(38))
    writer.remove("b.parquet", at=days_ago(37))
    if record is not None:
        writer.log("_last_vacuum_info", record.encode() if record == "damaged" else json.dumps(record).encode(), NOW)
    assert (await sweep(place, options=LITE)).data == freed


@pytest.mark.parametrize(("vacuumed", "told"), [(None, True), (1, True), (2, False), (3, False)])
async def test_what_it_cannot_see_is_said(place, vacuumed, told):
    writer = _writer(place)
    writer.add("a.parquet", at=days_ago(39))
    writer.remove("a.parquet", at=days_ago(38))
    writer.add("b.parquet", at=days_ago(37))
    writer.checkpoint(at=days_ago(37))
    for version in range(3):
        place.delete(f"_delta_log/{version:020d}.json")
    if vacuumed is not None:
        record = {"latestCommitVersionOutsideOfRetentionWindow": vacuumed}
        writer.log("_last_vacuum_info", json.dumps(record).encode(), NOW)
    with structlog.testing.capture_logs() as logs:
        assert not (await sweep(place, options=LITE)).data
    assert any(line["event"] == "lite_vacuum_sees_a_part" for line in logs) is told


async def test_the_log_is_cleaned_as_well(place):
    writer = DeltaWriter(place)
    writer.create(days_ago(60))
    writer.add("a.parquet", at=days_ago(59))
    writer.remove("a.parquet", at=days_ago(58))
    writer.checkpoint(at=days_ago(57))
    writer.add("b.parquet", at=days_ago(1))
    swept = await sweep(place, options=LITE, execute=True)
    assert swept.data == {"a.parquet"}
    assert swept.log == {f"{version:020d}.json" for version in range(2)}


async def test_the_share_that_goes_is_judged_by_what_the_log_knows(place):
    """Of what was looked at nearly everything goes; that alone is no sign of damage."""
    writer = _writer(place)
    gone = [f"gone-{number}.parquet" for number in range(12)]
    writer.add(*gone, *(f"live-{number}.parquet" for number in range(8)), at=days_ago(39))
    writer.remove(*gone, at=days_ago(38))
    strict = CleanupPolicy(ceilings=Ceilings(share=0.5, share_min_files=10))
    assert (await sweep(place, options=LITE, policy=strict)).run.refusal.code == "ceiling_share"
    fitting = CleanupPolicy(ceilings=Ceilings(share=0.6, share_min_files=10))
    assert (await sweep(place, options=LITE, policy=fitting)).run.refusal is None
