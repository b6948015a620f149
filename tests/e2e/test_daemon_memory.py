"""A service that runs for months must not grow: its memory after many cycles is what it was after a few."""

import re
import signal

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
