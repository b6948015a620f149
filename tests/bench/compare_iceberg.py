"""Against Iceberg's own procedures on Spark."""

from __future__ import annotations

import shutil

from tests.bench import iceberg_peer
from tests.bench.comparing import WARM_UP, Bench, Size, address, below, same, warehouse
from tests.bench.iceberg_lake import IcebergLake
from tests.bench.iceberg_peer import IcebergPeer
from tests.bench.measuring import Cost
from tests.bench.places import timed
from tests.peers.spark_service import service
from tests.servers import seaweedfs

_ON_SPARK_FROM = 1_000_000
"""Nobody plans smaller tables on Spark."""


def compare(bench: Bench, sizes: list[Size]) -> None:
    """Orphans alone, dry; then the whole cycle, for real, on the same table restored in between."""
    with iceberg_peer.running(bench.work / "iceberg", max((size.files for size in sizes), default=0)) as peer:
        for size in [Size(files=WARM_UP), *(Size(files=WARM_UP, s3=True) for _ in range(bench.server is not None))]:
            _iceberg_peer(bench, peer, size, _iceberg_lake(bench, size))
        warm = _iceberg_lake(bench, Size(files=WARM_UP))
        for size in sizes:
            with timed(f"Iceberg, {size.label} files built"):
                lake = _iceberg_lake(bench, size)
            planned, cycle = _iceberg_ours(bench, peer, size, lake)
            lake.restore()
            on_spark = None
            if size.files >= _ON_SPARK_FROM:
                on_spark = _iceberg_on_spark(bench, peer, size, lake, warm)
                lake.restore()
            dry, expiry, removal = _iceberg_peer(bench, peer, size, lake)
            one, both = "Spark remove_orphan_files", "Spark expire_snapshots + remove_orphan_files"
            bench.note("Iceberg orphans, dry run", size, planned, one, dry)
            bench.note("Iceberg full cycle, executed", size, cycle, both, expiry + removal)
            if on_spark:
                bench.note("Iceberg orphans, dry run, ours on Spark", size, on_spark[0], one, dry)
                bench.note("Iceberg full cycle, executed, ours on Spark", size, on_spark[1], both, expiry + removal)
            bench.remove(lake.place)


def _iceberg_lake(bench: Bench, size: Size) -> IcebergLake:
    lake = IcebergLake(place=bench.place(size, "iceberg"), files=size.files)
    lake.build()
    return lake


def _iceberg_ours(bench: Bench, peer: IcebergPeer, size: Size, lake: IcebergLake) -> tuple[Cost, Cost]:
    """Plan and execute, through the catalog."""
    name, properties = _register(bench, peer, size, lake)
    dataset = {"id": "prod", "format": "iceberg", "namespace": "db", "catalog": {"name": name, **properties}}
    settings = {"tenants": [{"id": "acme", "root": warehouse(lake.place), "datasets": [dataset]}]}
    planned, found = bench.planned(size, lake.place, settings, "acme/prod/t")
    same("our plan", found, lake.orphans)
    before = lake.place.names()
    cycle = bench.ours(size, settings, "run", "acme/prod/t", "--execute")
    same("our cycle", before - lake.place.names(), lake.orphans | lake.expired.keys())
    return planned, cycle


def _iceberg_on_spark(
    bench: Bench, peer: IcebergPeer, size: Size, lake: IcebergLake, warm: IcebergLake
) -> tuple[Cost, Cost]:
    """Plan and execute on a Spark like the peer's, with as many cores and a sixth of its heap. It was started and has
    planned the same small table before, on Spark too, and its cache is empty each time."""
    name, properties = _register(bench, peer, size, lake)
    dataset = {"id": "prod", "format": "iceberg", "namespace": "db", "catalog": {"name": name, **properties}}
    tenant = {"id": "acme", "root": warehouse(lake.place), "datasets": [dataset]}
    conf = {
        "spark.driver.memory": f"{iceberg_peer.heap_gb(size.files) * 1024 // 6}m",
        "spark.sql.shuffle.partitions": "2",
        "spark.lakesweep.smallTableRows": "0",
    }
    engine = {"kind": "spark", "spark": {"master": "local[2]", "conf": conf}}
    config = bench.config(size, {"engine": engine, "tenants": [tenant]})
    costs: list[Cost] = []
    before = lake.place.names()
    with service(config, bench.work / "on-spark.log", seaweedfs.ENVIRONMENT) as product:
        product.cycle(address(warm.place))
        for execute in (False, True):
            shutil.rmtree(bench.state / "cache", ignore_errors=True)
            with bench.measured(size, product.pid, costs):
                ended = product.cycle("acme/prod/t", execute=execute)
            if ended["engine"] != "spark" or ended["outcome"] != ("done" if execute else "dry_run"):
                raise RuntimeError(f"not done on Spark: {ended}")
            if not execute:
                same("our plan on Spark", bench.orphans_found(lake.place), lake.orphans)
    same("our cycle on Spark", before - lake.place.names(), lake.orphans | lake.expired.keys())
    return costs[0], costs[1]


def _iceberg_peer(bench: Bench, peer: IcebergPeer, size: Size, lake: IcebergLake) -> tuple[Cost, Cost, Cost]:
    """Orphans dry, expiry, orphans for real."""
    name, _ = _register(bench, peer, size, lake)
    costs = []
    before = lake.place.names()
    with bench.measured(size, peer.pid, costs):
        found = peer.remove_orphan_files(name, "db.t", dry_run=True, listing_by_prefix=size.s3)
    same("remove_orphan_files", {below(lake.place, path) for path in found}, lake.orphans)
    with bench.measured(size, peer.pid, costs):
        peer.expire_snapshots(name, "db.t")
    with bench.measured(size, peer.pid, costs):
        peer.remove_orphan_files(name, "db.t", dry_run=False, listing_by_prefix=size.s3)
    same("the two procedures", before - lake.place.names(), lake.orphans | lake.expired.keys())
    dry, expiry, removal = costs
    return dry, expiry, removal


def _register(bench: Bench, peer: IcebergPeer, size: Size, lake: IcebergLake) -> tuple[str, dict[str, str]]:
    """A catalog of its own for every table, which knows it as it was built."""
    name = warehouse(lake.place).rpartition("/")[2].replace("-", "_")
    s3 = None
    if size.s3 and bench.server:
        s3 = {
            "endpoint": bench.endpoint(size),
            "access_key": seaweedfs.ACCESS_KEY,
            "secret_key": seaweedfs.SECRET_KEY,
        }
    metadata = f"{lake.place.address}/{lake.metadata_name}"
    return name, peer.register(name, warehouse(lake.place), "db.t", metadata, s3)
