"""A table's metadata names what it likes: nothing outside the tenant's root is opened or written because of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.builders.cycles import SetClock
from tests.builders.iceberg import Lake, LakeTable, later
from tests.builders.iceberg_histories import elsewhere

from lakesweep.daemon.adapters import Adapters
from lakesweep.daemon.app import App
from lakesweep.daemon.clock import SystemClock
from lakesweep.formats.paimon.table import PaimonTable
from lakesweep.model.errors import Refused
from lakesweep.model.location import Location
from lakesweep.model.run import CleanupRun, Outcome
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.settings.schema import Settings

TABLE = "acme/d/t"


def tenant(name: str, lake: Lake, **more: Any) -> dict[str, Any]:
    dataset = {"id": "d", "format": "iceberg", "catalog": lake.properties, "namespace": "db"}
    return {"id": name, "root": str(lake.root), "datasets": [dataset], **more}


async def cleaned(home: Path, *tenants: dict[str, Any], target: str = TABLE) -> CleanupRun:
    cleanup = {"enabled": True, "dry_run": False, "max_snapshot_age_hours": 1, "grace_period_hours": 24}
    document = {
        "service": {"data_dir": str(home / "state")},
        "state": {"url": "memory://"},
        "orphan_cleanup": cleanup,
        "engine": {"kind": "inprocess"},
        "tenants": list(tenants),
    }
    clock = SetClock(later(days=10))
    async with App.open(Settings.model_validate(document), clock=clock) as app:
        (work,) = await app.resolve(target)
        storage = app.adapters.storage(work.tenant, work.read_root)

        async def now():
            return clock.now()

        storage.now = now
        return await app.run(work, execute=True)


@pytest.fixture
def acme(tmp_path: Path) -> LakeTable:
    table = Lake.make(tmp_path / "acme").create()
    table.history((1, 2, 3))
    return table


@pytest.fixture
def umbrella(tmp_path: Path) -> LakeTable:
    table = Lake.make(tmp_path / "umbrella").create()
    table.history((1, 2))
    return table


def change_metadata(table: LakeTable, change: Any) -> None:
    """As a tenant does who writes metadata files by hand: in place, so that the catalog points at it."""
    path = Path(Location.parse(table.refresh().metadata_location).path)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def name_list(table: LakeTable, address: str) -> None:
    def change(document: dict[str, Any]) -> None:
        document["snapshots"][-1]["manifest-list"] = address

    change_metadata(table, change)


def outside(kind: str, tmp_path: Path, umbrella: LakeTable) -> str:
    """An address that a hostile tenant could think of."""
    theirs = umbrella.refresh().current_snapshot().manifest_list
    match kind:
        case "another tenant's list":
            return theirs
        case "nothing":
            return f"{theirs}-not-there"
        case "a pipe":
            os.mkfifo(tmp_path / "umbrella" / "pipe")
            return f"file://{tmp_path}/umbrella/pipe"
        case "a link to another tenant's list":
            link = tmp_path / "acme" / "wh" / "db" / "t" / "metadata" / "link.avro"
            link.symlink_to(Location.parse(theirs).path)
            return f"file://{link}"
        case "a link on the way":
            link = tmp_path / "acme" / "way"
            link.symlink_to(tmp_path / "umbrella")
            return theirs.replace("/umbrella/", "/acme/way/")
        case "dots":
            return theirs.replace("/umbrella/", "/acme/../umbrella/")
        case _:
            return kind


KINDS = [
    "another tenant's list",
    "nothing",
    "a pipe",
    "a link to another tenant's list",
    "a link on the way",
    "dots",
    "file:///dev/zero",
    "/etc/shadow",
    "/proc/self/mem",
    "s3://elsewhere/list.avro",
]


async def test_no_answer_reveals_what_is_outside_of_the_root(tmp_path, acme, umbrella):
    told = {}
    for kind in KINDS:
        address = outside(kind, tmp_path, umbrella)
        name_list(acme, address)
        run = await cleaned(tmp_path, tenant("acme", acme.lake))
        assert (run.outcome, run.refusal.code) == (Outcome.FAILED, "indeterminate"), kind
        told[kind] = run.reason.replace(Location.parse(address).raw, "ADDRESS")
    assert len(set(told.values())) == 1, told
    assert "allow_read" in told["nothing"]


async def test_a_pipe_in_the_root_is_no_metadata_and_keeps_nobody_waiting(tmp_path, acme):
    os.mkfifo(tmp_path / "acme" / "pipe")
    name_list(acme, f"file://{tmp_path}/acme/pipe")
    run = await cleaned(tmp_path, tenant("acme", acme.lake))
    assert (run.outcome, run.refusal.code) == (Outcome.FAILED, "indeterminate")


async def test_the_operator_may_allow_a_place_by_name(tmp_path, acme):
    metadata = Path(Location.parse(acme.refresh().current_snapshot().manifest_list).path)
    moved = tmp_path / "elsewhere" / metadata.name
    moved.parent.mkdir()
    moved.write_bytes(metadata.read_bytes())
    name_list(acme, f"file://{moved}")
    run = await cleaned(tmp_path, tenant("acme", acme.lake))
    assert run.refusal.code == "indeterminate"
    run = await cleaned(tmp_path, tenant("acme", acme.lake, allow_read=[str(tmp_path / "elsewhere")]))
    assert run.outcome is Outcome.DONE, run.reason
    assert moved.exists()


async def with_metadata_bucket(tmp_path, acme, **allowed):
    """One cycle over a table whose metadata goes to a bucket outside of the tenant's root."""
    orphan = Path(Location.parse(acme.table.location()).path) / "data" / "orphan.parquet"
    orphan.write_bytes(b"never committed")
    return await cleaned(tmp_path, tenant("acme", acme.lake, **allowed)), orphan


async def test_metadata_outside_the_root_is_read_if_allowed(tmp_path, acme):
    bucket = tmp_path / "metadata-bucket"
    acme.set({"write.metadata.path": f"file://{bucket}/t"})
    acme.append(2)
    run, orphan = await with_metadata_bucket(tmp_path, acme)
    assert (run.outcome, run.refusal.code) == (Outcome.FAILED, "indeterminate")
    assert orphan.exists()
    inside = set(bucket.rglob("*"))
    run, orphan = await with_metadata_bucket(tmp_path, acme, allow_read=[str(bucket)])
    assert run.outcome is Outcome.DONE, run.reason
    assert not orphan.exists()
    assert set(bucket.rglob("*")) == inside, "it is read, and nothing there is written or deleted"


async def test_another_history_in_an_allowed_metadata_bucket_stops_the_table(tmp_path, acme):
    bucket = tmp_path / "metadata-bucket"
    acme.set({"write.metadata.path": f"file://{bucket}/t"})
    acme.append(2)
    theirs = elsewhere(acme.lake, tmp_path, acme)
    for number in (3, 4):
        theirs.append(number)
    acme.append(9)
    run, orphan = await with_metadata_bucket(tmp_path, acme, allow_read=[str(bucket)])
    assert (run.outcome, run.refusal.code) == (Outcome.REFUSED, "foreign_table")
    assert orphan.exists()


async def test_a_bare_location_is_read_below_its_own_root_alone(tmp_path, acme, umbrella):
    directory = Location.parse(acme.table.location()).path
    assert (await cleaned(tmp_path, target=directory)).refusal.code == "plan_only"
    name_list(acme, umbrella.refresh().current_snapshot().manifest_list)
    assert (await cleaned(tmp_path, target=directory)).refusal.code == "indeterminate"


async def test_no_metadata_file_is_written_into_another_tenants_place(tmp_path, acme, umbrella):
    theirs = Path(Location.parse(umbrella.table.location()).path) / "metadata"
    before = umbrella.lake.files()
    change_metadata(acme, lambda document: document["properties"].update({"write.metadata.path": f"file://{theirs}"}))
    run = await cleaned(tmp_path, tenant("acme", acme.lake), tenant("umbrella", umbrella.lake))
    assert "write.metadata.path" in run.expiry.skipped
    assert umbrella.lake.files() == before
    assert len(acme.refresh().metadata.snapshots) == 3


async def test_a_neighbour_with_its_metadata_elsewhere_is_still_known(tmp_path, acme):
    """Its metadata is outside of the root and its data inside of ours: the guard against overlap must see that."""
    catalog = acme.lake.catalog
    inside = Location.parse(acme.table.location()).path
    schema = acme.table.schema()
    properties = {"write.data.path": f"file://{inside}/data"}
    catalog.create_table("db.other", schema, location=f"file://{tmp_path}/far/other", properties=properties)
    run = await cleaned(tmp_path, tenant("acme", acme.lake))
    assert run.refusal.code == "overlap", run.reason


async def test_each_tenants_writer_ends_at_its_root_and_each_tables_at_the_table(tmp_path):
    document = {"service": {"data_dir": str(tmp_path / "state")}, "tenants": [{"id": "a", "root": f"{tmp_path}/acme"}]}
    adapters = Adapters(Settings.model_validate(document), SystemClock())
    root = Location.parse(f"{tmp_path}/acme")
    (tmp_path / "acme").mkdir()
    writer = adapters.writer("a", root)
    with pytest.raises(Refused, match="outside the tenant's root"):
        await writer.put(Location.parse(f"{tmp_path}/umbrella/x"), b"x", create_only=False)
    ref = TableRef(tenant=TenantId("a"), dataset="d", name="t", format=FormatName.PAIMON)
    storage = adapters.storage("a")
    table = PaimonTable(ref=ref, location=root.join("t"), storage=storage, tenant_root=root, writer=writer)
    with pytest.raises(Refused, match="outside the table's roots"):
        await table.writer.put(root.join("t2", "snapshot", "LATEST"), b"1", create_only=False)
    assert [path.name for path in tmp_path.rglob("*")] == ["acme"]
    await table.writer.put(root.join("t", "snapshot", "LATEST"), b"1", create_only=False)
    await adapters.aclose()
