"""Against deltalake's vacuum, and Delta's own on Spark."""

from __future__ import annotations

import sys
from dataclasses import replace

from tests.bench import measuring
from tests.bench.comparing import WARM_UP, Bench, Size, address, below, same
from tests.bench.delta_lake import DeltaLake
from tests.bench.measuring import Cost
from tests.bench.places import timed
from tests.peers import delta_spark


def compare(bench: Bench, sizes: list[Size]) -> None:
    """Planning a vacuum: ours, deltalake's, and where it is bearable Delta's own on Spark."""
    lakes = []
    for size in sizes:
        lake = DeltaLake(place=bench.place(size, "delta"), files=size.files)
        with timed(f"Delta, {size.label} files built"):
            lake.build()
        planned, found = bench.planned(size, lake.place, {}, address(lake.place))
        same("our plan", found, lake.garbage)
        bench.note("Delta vacuum, dry run", size, planned, "deltalake vacuum (Rust)", _deltalake(bench, size, lake))
        lakes.append((size, lake, planned))
    spark = [(size, lake, planned) for size, lake, planned in lakes if size.spark and not size.s3]
    if spark:
        _compare_delta_spark(bench, spark)
    for _, lake, _ in lakes:
        bench.remove(lake.place)


def _deltalake(bench: Bench, size: Size, lake: DeltaLake) -> Cost:
    output = bench.work / "deltalake.txt"
    endpoint = [bench.server.endpoint_url] if size.s3 and bench.server else []
    command = [sys.executable, "-m", "tests.bench.deltalake_peer", address(lake.place), *endpoint]
    cost = measuring.run(command, output=output, requests=bench.requests(size))
    seconds, *found = output.read_text().splitlines()
    same("deltalake", set(found), lake.garbage)
    return replace(cost, seconds=float(seconds))


def _compare_delta_spark(bench: Bench, lakes: list[tuple[Size, DeltaLake, Cost]]) -> None:
    work = bench.work / "delta"
    work.mkdir()
    warm = DeltaLake(place=bench.place(Size(files=WARM_UP), "warm"), files=WARM_UP)
    warm.build()
    with delta_spark.session(work) as spark:
        spark.sql(f"VACUUM delta.`{address(warm.place)}` DRY RUN")
        for size, lake, planned in lakes:
            costs: list[Cost] = []
            with bench.measured(size, spark.pid, costs):
                rows = spark.sql(f"VACUUM delta.`{address(lake.place)}` DRY RUN")
            same("VACUUM", {below(lake.place, path) for (path,) in rows}, lake.garbage)
            bench.note("Delta vacuum, dry run", size, planned, "Spark VACUUM DRY RUN", costs[0])
