"""A service that runs for months must not grow, and one run that takes too much ends before the process does."""

import re
import signal
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.builders.daemons import daemon
from tests.builders.iceberg import Lake
from tests.builders.small_lake import LocalLake, hours, to_toml


def cycles_and_megabytes(running):
    text = running.get("/metrics")[1]
    runs = sum(float(found) for found in re.findall(r"^lakesweep_cleanup_runs_total\{.*\} (\S+)$", text, re.MULTILINE))
    resident = re.search(r"^process_resident_memory_bytes (\S+)$", text, re.MULTILINE)
    return runs, float(resident.group(1)) / 2**20


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_memory_is_flat_over_five_hundred_cycles(tmp_path):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", [f"t{number}" for number in range(4)])
    iceberg = Lake.make(tmp_path / "lake" / "globex")
    for name in ("one", "two"):
        iceberg.create(name).history(range(5))
    dataset = {"id": "d", "format": "iceberg", "namespace": "db", "catalog": iceberg.properties}
    lake.tenants["globex"] = {"id": "globex", "root": str(iceberg.root), "datasets": [dataset]}
    config = tmp_path / "lakesweep.toml"
    cleanup = {
        "enabled": True,
        "dry_run": False,
        "cleanup_interval_hours": hours(seconds=0.1),
        "confirm_after_hours": 1,
    }
    config.write_text(to_toml(lake.settings(orphan_cleanup=cleanup, daemon={"discovery_seconds": 5})))
    # The allocators of DuckDB and Arrow take some hundred cycles to find their size.
    with daemon(config, tmp_path / "log", patience=3000) as running:
        running.until(lambda: cycles_and_megabytes(running)[0] > 800, "too few cycles")
        _, early = cycles_and_megabytes(running)
        running.until(lambda: cycles_and_megabytes(running)[0] > 1300, "too few cycles")
        cycles, late = cycles_and_megabytes(running)
        print(f"{early:.0f} MiB after 800 cycles, {late:.0f} MiB after {cycles:.0f}")
        assert late < early * 1.05
        assert running.end(signal.SIGTERM) == 0


def large_checkpoint(directory, files):
    """Small on disk, with every bound on one file kept; its table takes hundreds of megabytes to read."""
    paths = pa.array([f"{'d' * 300}/{uuid.uuid4()}.parquet" for _ in range(files)])
    adds = pa.StructArray.from_arrays([paths], ["path"])
    heads = {
        "protocol": [{"minReaderVersion": 1, "minWriterVersion": 2}],
        "metaData": [
            {"id": "00000000-0000-4000-8000-000000000000", "partitionColumns": [], "configuration": {"a": "b"}}
        ],
    }
    types = {"configuration": pa.map_(pa.string(), pa.string()), "partitionColumns": pa.list_(pa.string())}
    rows = {"add": pa.concat_arrays([adds, pa.nulls(1, adds.type)])}
    for name, (head,) in heads.items():
        kind = pa.struct([(key, types.get(key, pa.scalar(value).type)) for key, value in head.items()])
        rows[name] = pa.concat_arrays([pa.nulls(files, kind), pa.array([head], kind)])
    place = directory / "_delta_log/00000000000000000000.checkpoint.parquet"
    pq.write_table(pa.table(rows), place, compression="zstd", use_dictionary=False)


def peak_megabytes(running):
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    return int(re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE).group(1)) / 1024


def test_a_run_that_takes_too_much_memory_fails_and_others_are_cleaned(tmp_path):
    lake = LocalLake(root=tmp_path)
    lake.add("evil", ["huge"])
    lake.add("acme", ["one"])
    large_checkpoint(lake.directory("evil/d/huge"), 500_000)
    config = tmp_path / "lakesweep.toml"
    settings = lake.settings(engine={"memory_limit": "16MB"}, daemon={"max_listings": 1})
    config.write_text(to_toml(settings))
    # Both runs may grow at once on a busy machine, and the wrong one is ended. Then it is tried again, later each time.
    with daemon(config, tmp_path / "log", patience=400) as running:
        running.until(lambda: not lake.orphans_left("acme/d/one"), "the other tenant's table was not cleaned")
        told = running.until(
            lambda: [event for event in running.events("run_finished") if event["tenant"] == "evil"],
            "the run did not end",
        )
        print(f"{peak_megabytes(running):.0f} MB at the most")
        assert told[0]["outcome"] == "failed"
        assert "memory" in told[0]["reason"]
        assert "engine.memory_limit = 16MB" in told[0]["reason"]
        assert running.get("/healthz")[0] == 200
        assert running.end(signal.SIGTERM) == 0
    assert len(lake.orphans_left("evil/d/huge")) == 3
    lake.check_live()
