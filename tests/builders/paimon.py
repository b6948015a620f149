"""Cycles over Paimon tables on local disk, and what is left of a table's files."""

from __future__ import annotations

import os
import shutil
import tarfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.builders.cycles import Bench, SetClock
from tests.builders.stores import GatedUnpublishedRemover, StorageSpec

from lakesweep.cleanup import plan_file
from lakesweep.formats.paimon.table import PaimonTable
from lakesweep.model.files import Candidate
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import CleanupRun
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.storage.registry import open_deleter

FIXTURES = Path(__file__).resolve().parents[3] / "shared" / "fixtures" / "paimon-java-tables.tar.gz"


def fixture_table(name: str, into: Path) -> Path:
    """A table of another Java or C++ writer, unpacked with its whole database."""
    if not FIXTURES.is_file():
        pytest.skip("the collection of Paimon tables is not on this machine")
    database = f"{Path(name).parent}/"
    with tarfile.open(FIXTURES) as archive:
        members = [member for member in archive if f"{member.name}/".startswith(database)]
        archive.extractall(into, members, filter="data")
    return into / name


def fixture_names() -> list[str]:
    """Those tables by name, for a parametrised test; empty where they are not at hand."""
    if not FIXTURES.is_file():
        return []
    with tarfile.open(FIXTURES) as archive:
        paths = [Path(member.name) for member in archive if member.isdir() and Path(member.name).name == "schema"]
    return sorted(str(path.parent) for path in paths if "branch" not in path.parts)


def bench(root: Path, scratch: Path, now: datetime | None = None) -> Bench:
    """A bench whose clock stands a little ahead, so that everything committed so far is in the past."""
    return Bench(root=root, clock=SetClock(now or datetime.now(UTC) + timedelta(seconds=1)), scratch=scratch)


def table_at(path: Path, on: Bench) -> PaimonTable:
    """A fresh handle on a table directory."""
    root = Location.parse(str(on.root))
    return PaimonTable(
        ref=TableRef(tenant=TenantId("t"), dataset="d", name=path.name, format=FormatName.PAIMON),
        location=Location.parse(str(path)),
        storage=on.storage,
        tenant_root=root,
        writer=on.writer,
        remover=GatedUnpublishedRemover(lambda: on.faults.storage(open_deleter(StorageSpec())), root),
    )


def everything_old(keep: int = 1, **changes: object) -> CleanupPolicy:
    """Every snapshot may go as far as age is concerned, but not the newest `keep`."""
    return CleanupPolicy(
        **{"dry_run": False, "max_snapshot_age": timedelta(0), "min_snapshots_to_keep": keep} | changes
    )  # type: ignore[arg-type]


async def clean(path: Path, on: Bench, policy: CleanupPolicy, *, execute: bool = True) -> CleanupRun:
    """One cycle with a fresh handle."""
    return await on.run(table_at(path, on), policy, execute=execute)


def candidates(run: CleanupRun) -> list[Candidate]:
    """The rows of a run's plan."""
    assert run.plan is not None, run.reason
    return [row for batch in plan_file.read_batches(run.plan.rows_path) for row in batch]


def copy_of(path: Path, into: Path) -> Path:
    """The same table once more, times and all."""
    return Path(shutil.copytree(path, into / path.name, symlinks=True))


def files_of(path: Path) -> set[str]:
    """Every file below, relative."""
    return {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}


def age(path: Path, by: timedelta = timedelta(days=3)) -> None:
    """Make every file below as old as that."""
    when = time.time() - by.total_seconds()
    for file in [path, *path.rglob("*")]:
        if file.is_file():
            os.utime(file, (when, when))


def plant(path: Path, *names: str, by: timedelta = timedelta(days=3)) -> list[Path]:
    """Files that nothing refers to."""
    made = []
    for name in names:
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"stray")
        age(file, by)
        made.append(file)
    return made
