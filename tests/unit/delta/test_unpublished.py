"""A commit that counts before the log has it: what it adds is never taken for an orphan."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from tests.builders.delta import DeltaWriter, LocalPlace, days_ago, look, sweep

from lakesweep.formats.delta.table import DeltaOptions, VacuumMode
from lakesweep.model.location import Location
from lakesweep.model.run import Outcome
from lakesweep.storage.local.store import LocalStorage

UUID = "0b5c6c0e-7d60-4f5b-9a35-1f3b0a3f5f11"
JAVA = ".tmp/{version:020d}.json." + UUID
DELTALAKE = f"_commit_{UUID}.json.tmp"


@pytest.fixture
def writer(tmp_path: Path) -> DeltaWriter:
    """At version 2, with one file that was removed long ago and one that no commit names."""
    writer = DeltaWriter(LocalPlace(tmp_path / "lake" / "t"))
    writer.create(days_ago(60))
    writer.add("old.parquet", at=days_ago(50))
    writer.remove("old.parquet", at=days_ago(40))
    writer.place.put("new.parquet", b"data", days_ago(30))
    return writer


def _hand_over(writer: DeltaWriter, name: str, prefix: str = "") -> None:
    """All of a commit but its copy into the log: a file of its own, and one taken up again, as RESTORE does."""
    lines = [json.dumps({"add": writer.added(f"{prefix}{path}")}) for path in ("new.parquet", "old.parquet")]
    writer.log(name, "\n".join(lines).encode(), days_ago(30))


@pytest.mark.parametrize("mode", VacuumMode)
@pytest.mark.parametrize("name", [JAVA.format(version=3), DELTALAKE])
async def test_what_a_commit_names_that_may_still_come_into_the_log_stays(writer, name, mode):
    _hand_over(writer, name)
    writer.place.put("orphan.parquet", b"", days_ago(30))
    swept = await sweep(writer.place, execute=True, options=DeltaOptions(vacuum_mode=mode))
    assert swept.run.outcome is Outcome.DONE, swept.run.reason
    assert swept.names == (set() if mode is VacuumMode.LITE else {"orphan.parquet"})
    assert {"new.parquet", "old.parquet"} <= writer.place.names()


async def test_such_a_commit_may_know_the_table_under_another_name(writer):
    _hand_over(writer, DELTALAKE, "/mnt/lake/t/")
    assert not (await sweep(writer.place)).names


async def test_why_such_a_file_stays_can_be_explained(writer):
    _hand_over(writer, DELTALAKE)
    opened = await look(writer)
    (why,) = await opened.state.explain(Location.parse(str(writer.place.path / "new.parquet")))
    assert "temporary name" in why


@pytest.mark.parametrize("version", [0, 2])
async def test_temporary_files_of_versions_that_the_log_has_keep_nothing(writer, version):
    """Java never deletes them; and another writer may have been first."""
    _hand_over(writer, JAVA.format(version=version))
    assert (await sweep(writer.place)).names == {"new.parquet", "old.parquet"}


@pytest.mark.parametrize("hours", [23, 25])
async def test_a_temporary_commit_keeps_nothing_after_a_later_commit(writer, hours):
    _hand_over(writer, DELTALAKE)
    writer.commit([], days_ago(30) + timedelta(hours=hours))
    assert (await sweep(writer.place)).names == (set() if hours < 24 else {"new.parquet", "old.parquet"})


@pytest.mark.parametrize("said", [b"", b'{"add":{"path":"new'])
async def test_a_temporary_file_that_was_never_finished_is_no_commit(writer, said):
    writer.log(JAVA.format(version=3), said, days_ago(30))
    swept = await sweep(writer.place)
    assert swept.run.refusal is None
    assert swept.names == {"new.parquet", "old.parquet"}


async def test_such_a_commit_that_a_store_hands_out_cut_short_is_doubt(writer, monkeypatch):
    """The part that came looks like a whole commit with fewer files."""
    _hand_over(writer, DELTALAKE)
    whole = LocalStorage.read

    async def cut(self: LocalStorage, location: Location, limit: int | None = None) -> bytes:
        data = await whole(self, location, limit)
        return data[: data.index(b"\n") + 1] if location.name == DELTALAKE else data

    monkeypatch.setattr(LocalStorage, "read", cut)
    swept = await sweep(writer.place, execute=True)
    assert swept.run.outcome is not Outcome.DONE
    assert {"new.parquet", "old.parquet"} <= writer.place.names()


@pytest.mark.parametrize("published", [True, False])
@pytest.mark.parametrize("name", [JAVA.format(version=3), DELTALAKE])
async def test_such_a_commit_that_is_published_when_it_is_to_be_read_counts(writer, name, published, monkeypatch):
    """If its writer has given up instead, it keeps nothing."""
    _hand_over(writer, name)
    logged, whole = writer.place.path / "_delta_log", LocalStorage.read

    async def overtaken(self: LocalStorage, location: Location, limit: int | None = None) -> bytes:
        temporary = logged / name
        if location.raw.endswith(name) and temporary.exists():
            temporary.rename(logged / f"{3:020d}.json" if published else writer.place.path.parent / "given up")
        return await whole(self, location, limit)

    monkeypatch.setattr(LocalStorage, "read", overtaken)
    swept = await sweep(writer.place)
    assert swept.run.outcome is Outcome.DRY_RUN, swept.run.reason
    assert swept.names == (set() if published else {"new.parquet", "old.parquet"})
