"""How fast manifests are decoded, against fastavro's projected read: `python -m tests.bench.bench_decode`.

Manifests of Iceberg (statistics on ten columns; also with a block for every entry, as pyiceberg writes them) and
Paimon, from one entry to ten thousand, deflated. Ours includes every check: the walk over the blocks, the counts, the
statuses. Both are best CPU times of all threads; the last column is how much of the time another thread could run
Python meanwhile. `--plain` compares the compiled reader with our own plain Python instead.
"""

from __future__ import annotations

import argparse
import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import fastavro
from tests.bench import plain
from tests.bench.synthetic import Rows, SyntheticTable
from tests.builders.paimon_model import MANIFEST_SCHEMA, DataFile

from lakesweep.formats import avro
from lakesweep.formats import registry as formats
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName
from lakesweep.ports.references import Decode, ReferenceSource

SIZES = (1, 10, 40, 100, 1_000, 10_000)
_PROJECTED = {
    FormatName.ICEBERG: {"status": None, "data_file": {"file_path": None}},
    FormatName.PAIMON: {"_KIND": None, "_FILE": {"_FILE_NAME": None, "_EXTRA_FILES": None, "_EXTERNAL_PATH": None}},
}


def iceberg(rows: int, per_block: int = 100) -> bytes:
    return Rows().container(SyntheticTable(files=rows, orphans=0).paths(0, rows), per_block)


def iceberg_by_one(rows: int) -> bytes:
    return iceberg(rows, 1)


def paimon(rows: int) -> bytes:
    files = [DataFile(name=f"data-{number:036d}-0.orc", partition="a") for number in range(rows)]
    return avro.write(MANIFEST_SCHEMA, [file.entry(0) for file in files], codec="deflate")


MANIFESTS: dict[str, tuple[FormatName, Callable[[int], bytes]]] = {
    "iceberg": (FormatName.ICEBERG, iceberg),
    "by one": (FormatName.ICEBERG, iceberg_by_one),
    "paimon": (FormatName.PAIMON, paimon),
}


def projected(schema: Any, wanted: dict[str, Any]) -> Any:
    """The writer's schema with only the wanted fields."""
    if isinstance(schema, list):
        return [projected(branch, wanted) if isinstance(branch, dict) else branch for branch in schema]
    fields = []
    for field in schema["fields"]:
        if field["name"] in wanted:
            inner = wanted[field["name"]]
            fields.append({**field, "type": projected(field["type"], inner)} if inner else field)
    return {**schema, "fields": fields}


def by_fastavro(data: bytes, format: FormatName) -> int:
    """As fast as it goes: only the wanted fields become objects."""
    reader = fastavro.reader(io.BytesIO(data))
    schema = projected(json.loads(reader.metadata["avro.schema"]), _PROJECTED[format])
    return sum(1 for _ in fastavro.reader(io.BytesIO(data), reader_schema=schema))


def by_us(data: bytes, source: ReferenceSource, decode: Decode) -> int:
    return decode(source, data).num_rows


def best(call: Callable[[], int], expected: int, seconds: float) -> tuple[float, float]:
    """Least CPU seconds of one call, and the share of the wall time in which another thread made progress."""
    assert call() == expected
    least, ends = float("inf"), time.perf_counter() + seconds
    alone = _ticks(0.2) / 0.2
    done, counted = threading.Event(), [0]
    while least == float("inf") or time.perf_counter() < ends:
        cpu = time.process_time()
        call()
        least = min(least, time.process_time() - cpu)

    def count() -> None:
        while not done.is_set():
            counted[0] += 1

    beside = threading.Thread(target=count)
    started = time.perf_counter()
    beside.start()
    while time.perf_counter() - started < seconds:
        call()
    took = time.perf_counter() - started
    done.set()
    beside.join()
    return least, min(1.0, counted[0] / took / alone)


def _ticks(seconds: float) -> int:
    count, done, ends = 0, threading.Event(), time.perf_counter() + seconds
    while time.perf_counter() < ends:
        for _ in range(1000):
            if not done.is_set():
                count += 1
    return count


def cases() -> Iterator[tuple[str, FormatName, int, bytes, Callable[[], int]]]:
    """Each layout in each size, and how we read it."""
    for label, (name, make) in MANIFESTS.items():
        for rows in SIZES:
            data = make(rows)
            source = ReferenceSource(
                location=Location.parse("s3://b/m"),
                format=name,
                kind="manifest",
                retained=True,
                size_bytes=len(data),
                entries=rows,
            )
            yield label, name, rows, data, partial(by_us, data, source, formats.decoder(name))


def compare(seconds: float) -> None:
    """Print the table."""
    print(f"{'layout':8} {'rows':>6} {'ours ms':>9} {'fastavro ms':>12} {'times':>6} {'rows/CPU-s':>11} {'free':>6}")
    for label, name, rows, data, ours in cases():
        mine, free = best(ours, rows, seconds)
        theirs, _ = best(partial(by_fastavro, data, name), rows, seconds)
        print(
            f"{label:8} {rows:>6,} {mine * 1e3:>9.2f} {theirs * 1e3:>12.2f} {theirs / mine:>6.1f} "
            f"{rows / mine:>11,.0f} {free:>6.0%}",
            flush=True,
        )


def figures(seconds: float) -> dict[str, float]:
    """CPU seconds of our own reading alone."""
    found = {}
    for label, _, rows, _, ours in cases():
        assert ours() == rows
        least, ends = float("inf"), time.perf_counter() + seconds
        while least == float("inf") or time.perf_counter() < ends:
            before = time.process_time()
            ours()
            least = min(least, time.process_time() - before)
        found[f"{label} {rows:,}"] = least
    return found


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="per figure")
    parser.add_argument("--plain", action="store_true", help="against our own plain Python instead of fastavro")
    parser.add_argument(plain.FIGURES, action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.figures:
        plain.print_figures("lakesweep.formats._avro", figures(asked.seconds))
    elif asked.plain:
        plain.compare("tests.bench.bench_decode", ["--seconds", str(asked.seconds)])
    else:
        compare(asked.seconds)


if __name__ == "__main__":
    main()
