"""The clock guard in a new process: the store's own clock is asked before its first cycle too."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from pyiceberg.catalog import load_catalog
from tests.builders.dropping_table import Table
from tests.builders.paimon_model import ModelTable
from tests.builders.small_lake import LONG_AGO, small_table

from lakesweep.daemon.app import App
from lakesweep.model.run import Outcome
from lakesweep.settings.schema import Settings
from lakesweep.storage.memory import Held, bucket, forget

BEHIND = timedelta(days=30)


def delta(store, _):
    for name, data in small_table("t").objects():
        store.objects[f"wh/db.db/t/{name}"] = Held(data=data, modified_at=LONG_AGO)
    return {"id": "d", "format": "delta", "location": f"memory://{store.name}/wh/db.db"}


def paimon(store, _):
    ModelTable(store, "wh/db.db/t", datetime.now(UTC) - BEHIND, {}).append("2026-01-01")
    return {"id": "d", "format": "paimon", "warehouse": f"memory://{store.name}/wh", "database": "db"}


class MemoryPlace:
    def __init__(self, store):
        self.store, self.address = store, f"memory://{store.name}/wh/db.db/t"

    def make(self, names):
        self.put((name, b"") for name in names)

    def put(self, files):
        for name, data in files:
            self.store.objects[f"wh/db.db/t/{name}"] = Held(data=data, modified_at=LONG_AGO)


def iceberg(store, home):
    """Its catalog tells its tables: nothing has asked the store for anything before the first cycle."""
    place = MemoryPlace(store)
    properties = {"type": "sql", "uri": f"sqlite:///{home}/catalog.db", "name": "lake"}
    catalog = load_catalog(**properties, warehouse=f"memory://{store.name}/wh")
    catalog.create_namespace("db")
    with catalog.engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, iceberg_type) "
            f"VALUES ('lake', 'db', 't', '{place.address}/{Table(place, 100).metadata}', 'TABLE')"
        )
    return {"id": "d", "format": "iceberg", "catalog": properties, "namespace": "db"}


YOUNG = {
    delta: "wh/db.db/t/part-young.parquet",
    paimon: "wh/db.db/t/bucket-0/data-6f1f8a3e-1111-4000-8000-000000000001-0.orc",
    iceberg: "wh/db.db/t/data/young.parquet",
}


@pytest.mark.parametrize("make", [delta, paimon, iceberg])
async def test_the_first_cycle_of_a_process_asks_the_stores_clock(tmp_path, make):
    """This machine's clock has always been a month ahead, and nothing on the machine itself shows that."""
    store = bucket(f"b{uuid.uuid4().hex[:12]}")
    store.clock = lambda: datetime.now(UTC) - BEHIND
    dataset = make(store, tmp_path)
    store.objects[YOUNG[make]] = Held(data=b"of a writer that has not committed yet", modified_at=store.clock())
    settings = {
        "orphan_cleanup": {"dry_run": False, "ceilings": {"share": 1.0}},
        "service": {"data_dir": str(tmp_path)},
        "tenants": [{"id": "acme", "root": f"memory://{store.name}/wh", "datasets": [dataset]}],
    }
    async with App.open(Settings.model_validate(settings)) as app:
        (work,) = await app.resolve("acme/d/t")
        run = await app.run(work, execute=None)
    assert YOUNG[make] in store.objects, "it was written a second ago"
    assert (run.outcome, run.refusal and run.refusal.code) == (Outcome.REFUSED, "clock_skew")
    forget(store.name)
