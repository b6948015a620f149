"""Both engines on one synthetic Iceberg table: `python -m tests.bench.bench_engines --files 1000000`.

The table is made once, on disk: real manifests with statistics on ten columns, a listing, no data files. Each engine
then plans it in a process of its own, which is watched from outside: seconds per phase, CPU, and the peak memory of
the driver, its JVM and Spark's Python workers. Both plans must be as planted, and the same.

    python -m tests.bench.bench_engines --files 1000 --warm 20

plans a small table again and again in one process, so that Spark's session is warm, and shows the CPU seconds, jobs
and tasks of a plan.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
from pyspark import cloudpickle
from tests.bench import stored_table
from tests.bench.stored_table import StoredTable
from tests.bench.synthetic import CUTOFF, Rows, SyntheticTable, job, listing_page

from lakesweep.engines.inprocess import InProcessEngine
from lakesweep.engines.spark.config import SparkConfig
from lakesweep.engines.spark.engine import SparkEngine
from lakesweep.engines.spark.join_here import JoinHere
from lakesweep.engines.spark.scratch import DirectoryScratch
from lakesweep.engines.spark.session import shared_runtime
from lakesweep.formats import registry as formats
from lakesweep.ports.engine import Engine
from lakesweep.ports.references import ReferenceSource

ENGINES = ("inprocess", "spark")
PER_MANIFEST = 10_000
ROLES = ("driver", "JVM", "workers")
DIRECTORIES = ("scratch", "shuffle")
"""What driver and executors share, and what Spark spills and shuffles."""
_LOOK_SECONDS = 0.2
_MIB = 1024 * 1024


# Making the table.


def table_of(files: int, statistics: int = 10) -> SyntheticTable:
    """With ten manifests at least."""
    per_manifest = max(1, min(PER_MANIFEST, files // 10))
    return SyntheticTable(files=files, orphans=files // 10, per_manifest=per_manifest, statistics=statistics)


def write(table: SyntheticTable, directory: Path) -> None:
    """All manifests and pages, on all cores."""
    for name in ("manifests", "pages"):
        (directory / name).mkdir(parents=True)
    pages = -(-(table.files + table.orphans) // table.per_manifest)
    with ProcessPoolExecutor() as pool:
        for _ in pool.map(functools.partial(_write_some, table, directory), range(0, pages, 10), chunksize=1):
            pass
    manifests = [table.source(number).location.raw for number in range(table.manifests)]
    (directory / "pages" / "manifests.arrow").write_bytes(listing_page(manifests))


def _write_some(table: SyntheticTable, directory: Path, first: int) -> None:
    for number in range(first, first + 10):
        paths = table.chunk(number)
        if number < table.manifests:
            name = table.source(number).location.name
            (directory / "manifests" / name).write_bytes(table.manifest_bytes(number, _rows(table.statistics), paths))
        if paths:
            (directory / "pages" / f"{number:08d}.arrow").write_bytes(listing_page(paths))


@functools.cache
def _rows(statistics: int) -> Rows:
    """Once per process."""
    return Rows(statistics)


def sources_of(table: SyntheticTable, directory: Path) -> list[ReferenceSource]:
    """As the manifest lists would give them: with their lengths."""
    found = [table.source(number) for number in range(table.manifests)]
    sizes = [(directory / "manifests" / source.location.name).stat().st_size for source in found]
    return [replace(source, size_bytes=size) for source, size in zip(found, sizes, strict=True)]


# Planning it, in a process of its own.


def open_engine(kind: str, directory: Path, work: Path) -> Engine:
    """With the settings' own defaults; Spark with two local cores and 2 GB."""
    storage = StoredTable(directory, CUTOFF)
    if kind == "inprocess":
        return InProcessEngine(
            storage=storage, decoder=formats.decoder, cache=None, scratch_dir=work / "scratch", memory_limit="512MB"
        )
    cloudpickle.register_pickle_by_value(stored_table)
    conf = (("spark.driver.memory", "2g"), ("spark.local.dir", str(work / "shuffle")))
    config = SparkConfig(master="local[2]", conf=conf)
    return SparkEngine(
        runtime=shared_runtime(config),
        storage=storage,
        open_storage=functools.partial(StoredTable, directory, CUTOFF),
        decoder=formats.decoder,
        cache=None,
        scratch=DirectoryScratch(parent=work / "scratch"),
        small=JoinHere(directory=work / "scratch", rows=config.small_rows),
    )


async def plan(kind: str, table: SyntheticTable, directory: Path, work: Path) -> dict[str, Any]:
    """One plan, as numbers."""
    started = time.perf_counter()
    async with contextlib.aclosing(open_engine(kind, directory, work)) as engine:
        made = await engine.find_orphans(job(sources_of(table, directory), work / "plan.parquet"))
    return {
        "seconds": time.perf_counter() - started,
        "phases": made.timings,
        "digest": made.digest,
        "right": made.candidates.files == table.orphans and made.references == table.files + table.manifests,
    }


async def plan_again(kind: str, table: SyntheticTable, directory: Path, work: Path, times: int) -> None:
    """The same plan so many times, and what each took."""
    work.mkdir(exist_ok=True)
    async with contextlib.aclosing(open_engine(kind, directory, work)) as engine:
        for number in range(times):
            before = _cpu(os.getpid())
            made = await engine.find_orphans(job(sources_of(table, directory), work / f"plan{number}.parquet"))
            after = _cpu(os.getpid())
            if made.candidates.files != table.orphans:
                raise RuntimeError(f"{made.candidates.files} orphans, not {table.orphans}")
            spent = {role: round(after[role] - before[role], 2) for role in ROLES}
            print(f"{kind} {number}: {sum(spent.values()):.2f} CPU s {spent} {await _jobs(engine, f'plan{number}')}")


async def _jobs(engine: Engine, name: str) -> str:
    """How many jobs and tasks a plan had, by the name of its rows."""
    if not isinstance(engine, SparkEngine):
        return ""
    tracker = (await engine._runtime.session()).sparkContext.statusTracker()
    jobs = tracker.getJobIdsForGroup(f"lakesweep-{name}")
    stages = (tracker.getStageInfo(stage) for number in jobs for stage in tracker.getJobInfo(number).stageIds)
    return f"{len(jobs)} jobs, {sum(stage.numCompletedTasks for stage in stages if stage)} tasks"


def _cpu(pid: int) -> dict[str, float]:
    """Seconds by role, up to now."""
    spent = dict.fromkeys(ROLES, 0.0)
    for role, process in _by_role(pid):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            spent[role] += times.user + times.system
    return spent


# Watching it.


@dataclass(kw_only=True)
class Peaks:
    """The most that was seen of a process and of all below it."""

    memory: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ROLES, 0))
    """Bytes by role. Pages that processes share are shared out among them, so that sums are true."""
    disk: dict[str, int] = field(default_factory=lambda: dict.fromkeys(DIRECTORIES, 0))
    cpu: dict[tuple[str, int], float] = field(default_factory=dict)
    """Seconds by role and process."""

    def look(self, pid: int, work: Path) -> None:
        now = dict.fromkeys(self.memory, 0)
        for role, process in _by_role(pid):
            with contextlib.suppress(psutil.Error):
                now[role] += process.memory_full_info().pss
                times = process.cpu_times()
                self.cpu[role, process.pid] = times.user + times.system
        self.memory = {role: max(most, now[role]) for role, most in self.memory.items()}
        self.disk = {name: max(most, _size(work / name)) for name, most in self.disk.items()}


def _by_role(pid: int) -> Iterator[tuple[str, psutil.Process]]:
    """Spark's workers are what Python there is below the JVM."""
    with contextlib.suppress(psutil.NoSuchProcess):
        driver = psutil.Process(pid)
        yield "driver", driver
        for child in driver.children():
            yield "JVM", child
            yield from (("workers", one) for one in child.children(recursive=True))


def _size(directory: Path) -> int:
    found = 0
    for folder, _, names in os.walk(directory):  # directories come and go meanwhile
        for name in names:
            with contextlib.suppress(OSError):
                found += (Path(folder) / name).stat().st_size
    return found


def measure(kind: str, files: int, directory: Path) -> dict[str, Any]:
    """Plan in a fresh process and watch it to its end."""
    with tempfile.TemporaryDirectory(dir=directory.parent) as folder:
        work = Path(folder)
        command = [sys.executable, "-m", "tests.bench.bench_engines", "--files", str(files), "--engine", kind]
        command += ["--table", str(directory), "--work", folder]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        peaks = Peaks()
        while process.poll() is None:
            peaks.look(process.pid, work)
            time.sleep(_LOOK_SECONDS)
        if process.returncode:
            raise RuntimeError(f"{kind} ended with {process.returncode}")
        found = json.loads(process.stdout.read().splitlines()[-1])
    memory = {role: round(most / _MIB) for role, most in peaks.memory.items()}
    disk = {name: round(most / _MIB) for name, most in peaks.disk.items()}
    shares = {role: round(sum(spent for (of, _), spent in peaks.cpu.items() if of == role), 1) for role in ROLES}
    return {**found, "cpu": sum(peaks.cpu.values()), "cpu_by_role": shares, "memory": memory, "disk": disk}


def show(files: int, results: dict[str, dict[str, Any]]) -> None:
    """A table for people, and the time of each phase."""
    columns = [f"{files:,} files", "seconds", "CPU seconds", *(f"{name} MiB" for name in (*ROLES, *DIRECTORIES))]
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for kind, got in results.items():
        sizes = [*got["memory"].values(), *got["disk"].values()]
        print(f"| {kind} | {got['seconds']:.1f} | {got['cpu']:.1f} | {' | '.join(map(str, sizes))} |")
    for kind, got in results.items():
        print(f"{kind}: {', '.join(f'{phase} {seconds:.1f} s' for phase, seconds in got['phases'].items())}")
        print(f"{kind}, CPU: {', '.join(f'{role} {spent} s' for role, spent in got['cpu_by_role'].items())}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a table and measure both engines; or plan, when called by itself."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--only", choices=ENGINES, help="measure one engine instead of both")
    parser.add_argument("--warm", type=int, help="plan so many times in one process instead")
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--table", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    files, table = options.files, table_of(options.files)
    if options.engine:
        print(json.dumps(asyncio.run(plan(options.engine, table, options.table, options.work))))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "table"
        started = time.perf_counter()
        write(table, directory)
        seconds, size = time.perf_counter() - started, _size(directory) / _MIB
        print(
            f"made {files:,} files in {table.manifests:,} manifests, {size:,.0f} MiB, in {seconds:.0f} s\n", flush=True
        )
        kinds = [kind for kind in ENGINES if options.only in (None, kind)]
        if options.warm:
            for kind in kinds:
                asyncio.run(plan_again(kind, table, directory, Path(folder) / kind, options.warm))
            return 0
        results = {kind: measure(kind, files, directory) for kind in kinds}
    show(files, results)
    right = all(got["right"] for got in results.values()) and len({got["digest"] for got in results.values()}) == 1
    print("every plan is as planted, with one digest" if right else f"WRONG: {results}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
