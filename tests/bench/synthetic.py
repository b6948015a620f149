"""An Iceberg table of any size that exists only in memory: real manifests, a generated listing, no data files.

    python -m tests.bench.synthetic --files 1000000 [--cached] [--sources-as avro|arrow|made]

plans it with the in-process engine and prints seconds per phase and peak memory. `avro` sources are manifests
with statistics on ten columns; `arrow` ones cost next to nothing to decode, which leaves the engine itself; with
`made` listing and sources are made on demand, which leaves the engine's memory and makes its times meaningless.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import random
import resource
import tempfile
import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc
from tests.builders.iceberg_metadata import Entry, entry_record, entry_schema
from zlib_ng import zlib_ng

from lakesweep.engines.inprocess import InProcessEngine
from lakesweep.engines.manifest_cache import FingerprintCache
from lakesweep.formats import avro
from lakesweep.formats.iceberg import decode as iceberg_decode
from lakesweep.formats.iceberg.layout import IcebergLayout
from lakesweep.model.errors import NotFound
from lakesweep.model.files import OrphanPlan, StoredObject
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.engine import Marked, OrphanJob
from lakesweep.ports.references import REFERENCE_SCHEMA, References, ReferenceSource
from lakesweep.ports.storage import LISTING_SCHEMA, Part
from lakesweep.ports.table import TableState

ROOT = Location.parse("s3://lake/warehouse/prod.db/events")
CUTOFF = datetime(2026, 3, 1, tzinfo=UTC)
OLD = CUTOFF - timedelta(days=3)
_MADE_BYTES = 128 * 1024
"""What a source is said to have that is made on demand: one of an unknown size is not cached."""
PATTERNS = 500
"""Different sets of statistics; every row takes one of them."""


@dataclass(frozen=True, kw_only=True)
class SyntheticTable:
    """`files` live files in manifests of `per_manifest`, and `orphans` more that nothing names."""

    files: int
    orphans: int
    per_manifest: int = 1000
    statistics: int = 10
    """Columns that manifests have statistics on."""
    sources_as: str = "avro"

    @property
    def manifests(self) -> int:
        return -(-self.files // self.per_manifest)

    def paths(self, first: int, count: int) -> list[str]:
        """Addresses number `first` and following: the same ones every time they are asked for."""
        root, digits = ROOT.raw, random.Random(first).randbytes(16 * count).hex()
        return [
            f"{root}/data/day={number % 400:04d}/00000-{number:09d}-"
            f"{digits[at : at + 8]}-{digits[at + 8 : at + 12]}-{digits[at + 12 : at + 16]}-{digits[at + 16 : at + 20]}-"
            f"{digits[at + 20 : at + 32]}.parquet"
            for number, at in zip(range(first, first + count), range(0, 32 * count, 32), strict=True)
        ]

    def chunk(self, number: int) -> list[str]:
        first = number * self.per_manifest
        return self.paths(first, min(self.per_manifest, self.files + self.orphans - first))

    def manifest_bytes(self, number: int, rows: Rows, paths: Sequence[str] | None = None) -> bytes:
        """`paths` is the manifest's chunk, if it was made before."""
        paths = (paths or self.chunk(number))[: self.files - number * self.per_manifest]
        return rows.container(paths) if self.sources_as == "avro" else _arrow(paths)

    def source(self, number: int) -> ReferenceSource:
        return ReferenceSource(
            location=ROOT.join("metadata", f"{uuid.UUID(int=number)}-m0.avro"),
            format=FormatName.ICEBERG,
            kind="manifest",
            retained=True,
            entries=min(self.per_manifest, self.files - number * self.per_manifest),
        )


class Rows:
    """Encodes manifest rows by patching the path into rows encoded before: a hundred times faster than a writer."""

    def __init__(self, statistics: int = 10) -> None:
        self._statistics = statistics
        schema = entry_schema()
        parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
        self._dice = random.Random(0)
        placeholder = SyntheticTable(files=1, orphans=0).paths(0, 1)[0]
        self._patterns = []
        for _ in range(PATTERNS):
            out = io.BytesIO()
            fastavro.schemaless_writer(out, parsed, self._record(placeholder))
            self._patterns.append(out.getvalue().split(placeholder.encode()))
        self._sync = self._dice.randbytes(16)
        metadata = {"avro.schema": json.dumps(schema).encode(), "avro.codec": b"deflate"}
        self._header = avro._header(metadata, self._sync)

    def container(self, paths: Sequence[str], rows_per_block: int = 100) -> bytes:
        parts = [self._header]
        for start in range(0, len(paths), rows_per_block):
            block = paths[start : start + rows_per_block]
            chosen = self._dice.choices(self._patterns, k=len(block))
            body = b"".join([path.encode().join(pattern) for path, pattern in zip(block, chosen, strict=True)])
            packer = zlib_ng.compressobj(1, zlib_ng.DEFLATED, -15)
            packed = packer.compress(body) + packer.flush()
            parts += [avro._long(len(block)), avro._long(len(packed)), packed, self._sync]
        return b"".join(parts)

    def _record(self, path: str) -> dict[str, object]:
        record = entry_record(Entry(path=path, columns_with_statistics=self._statistics))
        file = record["data_file"]
        for name in ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts"):
            file[name] = [{"key": key, "value": self._dice.getrandbits(20)} for key in range(1, self._statistics + 1)]
        for name in ("lower_bounds", "upper_bounds"):
            file[name] = [{"key": key, "value": self._dice.randbytes(8)} for key in range(1, self._statistics + 1)]
        return record


def _arrow(paths: Sequence[str]) -> bytes:
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, REFERENCE_SCHEMA) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([pa.array(paths, pa.string())], schema=REFERENCE_SCHEMA))
    return sink.getvalue().to_pybytes()


def _decode_arrow(_source: ReferenceSource, data: bytes) -> pa.RecordBatch:
    return ipc.open_stream(data).read_next_batch()


class SyntheticStorage:
    """Lists the table page by page and reads its manifests, all made beforehand unless `made` on demand."""

    def __init__(self, table: SyntheticTable) -> None:
        self._table = table
        self._rows = Rows()
        self._numbers = {table.source(number).location.raw: number for number in range(table.manifests)}
        self._manifests: dict[str, bytes] = {}
        self._pages: dict[int, bytes] = {}
        self.sources = [replace(table.source(number), size_bytes=_MADE_BYTES) for number in range(table.manifests)]
        if table.sources_as != "made":
            self._manifests = {raw: table.manifest_bytes(n, self._rows) for raw, n in self._numbers.items()}
            self._pages = {number: self._page(number) for number in range(self._page_count)}
            self.sources = [replace(s, size_bytes=len(self._manifests[s.location.raw])) for s in self.sources]

    @property
    def _page_count(self) -> int:
        return -(-(self._table.files + self._table.orphans) // self._table.per_manifest)

    async def list(self, root: Location) -> AsyncGenerator[pa.RecordBatch, None]:
        for number in range(self._page_count):
            await asyncio.sleep(0)
            yield ipc.open_stream(self._pages.get(number) or self._page(number)).read_next_batch()
        yield ipc.open_stream(listing_page(list(self._numbers))).read_next_batch()

    async def parts(self, root: Location, wanted: int) -> Sequence[Part]:
        return (Part(root=root, prefix=root.path),)

    def list_part(self, part: Part) -> AsyncGenerator[pa.RecordBatch, None]:
        return self.list(part.root)

    async def read(self, location: Location, limit: int | None = None) -> bytes:
        data = self._manifests.get(location.raw)
        return data or self._table.manifest_bytes(self._numbers[location.raw], self._rows)

    async def stat(self, location: Location) -> StoredObject:
        raise NotFound(location.raw, "synthetic")

    async def now(self) -> datetime:
        return CUTOFF

    async def aclose(self) -> None:
        return None

    def _page(self, number: int) -> bytes:
        return listing_page(self._table.chunk(number))


def listing_page(paths: list[str]) -> bytes:
    """These objects, as storage lists them."""
    count = len(paths)
    columns = [
        pa.array(paths, pa.string()),
        pa.array(range(count), pa.int64()),
        pa.repeat(pa.scalar(OLD, LISTING_SCHEMA.field("modified_at").type), count),
        pc.cast(pa.array(range(count)), pa.string()),
    ]
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, LISTING_SCHEMA, options=ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=LISTING_SCHEMA))
    return sink.getvalue().to_pybytes()


def job(sources: Sequence[ReferenceSource], rows_path: Path) -> OrphanJob:
    """The whole table as one job."""
    ref = TableRef(tenant=TenantId("bench"), dataset="prod", name="events", format=FormatName.ICEBERG)
    home = ROOT.as_directory()
    layout = IcebergLayout(home=home.raw, outposts=(), context=("prod.db", "events"), plain_prefixes=())

    async def mark() -> Marked:
        state = TableState(
            ref=ref, head="synthetic", table_uuid=None, location=home, roots=(home,), snapshots=(), layout=layout
        )
        named = tuple(source.location.raw for source in sources)
        return Marked(state=state, references=References(retained=named, expired=(), sources=tuple(sources)))

    return OrphanJob(ref=ref, roots=(home,), layout=layout, cutoff=CUTOFF, mark=mark, rows_path=str(rows_path))


async def plan(storage: SyntheticStorage, folder: Path, *, sources_as: str, cached: bool, memory: str) -> OrphanPlan:
    """Plan once with a fresh engine."""
    engine = InProcessEngine(
        storage=storage,
        decoder=lambda _: iceberg_decode.decode if sources_as == "avro" else _decode_arrow,
        cache=FingerprintCache(folder / "cache", limit_bytes=4 * 1024**3, key=b"k" * 32) if cached else None,
        scratch_dir=folder / "scratch",
        memory_limit=memory,
    )
    async with contextlib.aclosing(engine), longest_stall() as stall:
        made = await engine.find_orphans(job(storage.sources, folder / "plan.parquet"))
    return replace(made, timings={**made.timings, "longest_loop_stall": round(stall[0], 3)})


@contextlib.asynccontextmanager
async def longest_stall() -> AsyncGenerator[list[float], None]:
    """How long the event loop was away at the most, seen by a task that wants to wake every five milliseconds."""
    longest = [0.0]

    async def tick() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.005)
            longest[0] = max(longest[0], time.perf_counter() - began - 0.005)

    ticking = asyncio.create_task(tick(), name="tick")
    try:
        yield longest
    finally:
        ticking.cancel()


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Build, plan, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--sources-as", choices=["avro", "arrow", "made"], default="avro")
    parser.add_argument("--cached", action="store_true", help="plan twice with a digest cache")
    parser.add_argument("--memory", default="512MB", help="limit of the join")
    options = parser.parse_args()
    table = SyntheticTable(files=options.files, orphans=options.files // 10, sources_as=options.sources_as)
    storage = SyntheticStorage(table)
    print(f"built {table.files} files in {table.manifests} manifests, {_peak_mib():.0f} MiB")
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2 if options.cached else 1):
            started, cpu = time.perf_counter(), time.process_time()
            made = asyncio.run(
                plan(
                    storage,
                    Path(folder),
                    sources_as=options.sources_as,
                    cached=options.cached,
                    memory=options.memory,
                )
            )
            wall, cpu = time.perf_counter() - started, time.process_time() - cpu
            right = made.candidates.files == table.orphans and made.references == table.files + table.manifests
            print(
                f"{wall:.2f} s wall, {cpu:.2f} s CPU, peak {_peak_mib():.0f} MiB, "
                f"{made.timings}, {'as planted' if right else f'WRONG: {made.candidates}'}"
            )


if __name__ == "__main__":
    main()
