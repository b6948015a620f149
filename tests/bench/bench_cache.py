"""What the digest cache saves: `python -m tests.bench.bench_cache`.

An Iceberg table on local disk is planned three times by the in-process engine: first with an empty cache, then after
its last two commits (of 120, so at least one new manifest in a hundred), then once more with nothing new. The last
column is the whole plan over its own listing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.iceberg_lake import IcebergLake
from tests.bench.places import LocalPlace

from lakesweep.cleanup.ports import Marked, OrphanJob
from lakesweep.engines.registry import open_inprocess
from lakesweep.formats import registry as formats
from lakesweep.model.files import OrphanPlan
from lakesweep.model.location import Location
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.model.table import FormatName
from lakesweep.storage.registry import open_storage
from lakesweep.storage.spec import StorageSpec

OLDER = "metadata/00000-older.metadata.json"
CUTOFF = datetime.now(UTC)


class _Clock:
    def now(self) -> datetime:
        return CUTOFF


async def plan(lake: IcebergLake, metadata: str, folder: Path) -> OrphanPlan:
    """One plan by a fresh engine, at one metadata file."""
    home, head = (Location.parse(text) for text in (f"{lake.place.address}/", f"{lake.place.address}/{metadata}"))
    async with aclosing(open_storage(StorageSpec())) as storage:
        table = await formats.open_location(head, FormatName.ICEBERG, storage, _Clock(), home)
        state = await table.load()

        async def mark() -> Marked:
            now = await table.load()
            return Marked(state=now, references=await table.references(now, ExpiryPlan(head=now.head)))

        engine = open_inprocess(
            storage=storage, decoder=formats.decoder, data_dir=folder, memory_limit="512MB", cache_scope="bench"
        )
        async with aclosing(engine):
            return await engine.find_orphans(
                OrphanJob(
                    ref=table.ref,
                    roots=state.roots,
                    layout=state.layout,
                    cutoff=CUTOFF,
                    mark=mark,
                    rows_path=str(folder / "plan.parquet"),
                )
            )


def compare(files: int, at: Path) -> None:
    """Print the table."""
    lake = IcebergLake(place=LocalPlace(root=at / "lake"), files=files)
    lake.build()
    document = json.loads((at / "lake" / lake.metadata_name).read_bytes())
    document["snapshots"] = document["snapshots"][:-2]
    newest = document["snapshots"][-1]["snapshot-id"]
    document |= {"current-snapshot-id": newest, "refs": {"main": {"type": "branch", "snapshot-id": newest}}}
    lake.place.put([(OLDER, json.dumps(document).encode())])
    print(f"\nIceberg, {files:,} live files in {lake.manifests:,} manifests and {files // 10:,} orphans")
    print(f"{'cycle':16} {'list s':>8} {'mark s':>8} {'read s':>8} {'judge s':>8} {'rest s':>8} {'all/list':>9}")
    reads = []
    for name, metadata in (
        ("first", OLDER),
        ("after commits", lake.metadata_name),
        ("nothing new", lake.metadata_name),
    ):
        took = asyncio.run(plan(lake, metadata, at / "data")).timings
        reads.append(took["read"])
        rest = took["look_again"] + took["write"]
        whole = sum(took.values()) / took["list"]
        shown = " ".join(f"{took[phase]:>8.2f}" for phase in ("list", "mark", "read", "judge"))
        print(f"{name:16} {shown} {rest:>8.2f} {whole:>9.2f}", flush=True)
    print(f"reading references after commits: {reads[0] / reads[1]:.0f} times faster than at first")


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=200_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "data").mkdir()
        compare(chosen.files, Path(folder))


if __name__ == "__main__":
    main()
