"""What the digest cache saves: `python -m tests.bench.bench_cache`.

An Iceberg table, on local disk and on the S3 server, is planned three times by the in-process engine: first with an
empty cache, then after its last two commits (of 120, so at least one new manifest in a hundred), then once more with
nothing new. The last column is the whole plan over its own listing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.iceberg_lake import IcebergLake
from tests.bench.places import LocalPlace, Place, S3Place
from tests.builders.stores import StorageSpec
from tests.servers import seaweedfs

from lakesweep.engines.registry import open_inprocess
from lakesweep.formats import registry as formats
from lakesweep.formats.spec import Tools
from lakesweep.model.files import OrphanPlan
from lakesweep.model.location import Location
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.model.table import FormatName
from lakesweep.ports.engine import Marked, OrphanJob
from lakesweep.storage.registry import open_storage
from lakesweep.storage.s3.settings import S3Options

OLDER = "metadata/00000-older.metadata.json"
CUTOFF = datetime.now(UTC)
_BUCKET = "lake"


class _Clock:
    def now(self) -> datetime:
        return CUTOFF


async def plan(lake: IcebergLake, metadata: str, folder: Path, spec: StorageSpec) -> OrphanPlan:
    """One plan by a fresh engine, at one metadata file."""
    home, head = (Location.parse(text) for text in (f"{lake.place.address}/", f"{lake.place.address}/{metadata}"))
    async with aclosing(open_storage(spec)) as storage:
        table = await formats.open_location(head, FormatName.ICEBERG, Tools(storage=storage, clock=_Clock()), home)
        state = await table.load()

        async def mark() -> Marked:
            now = await table.load()
            return Marked(state=now, references=await now.references(ExpiryPlan(head=now.head)))

        engine = open_inprocess(
            storage=storage,
            decoder=formats.decoder,
            data_dir=folder,
            memory_limit="512MB",
            cache_scope="bench",
            cache_key=b"k" * 32,
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


def compare(files: int, where: str, place: Place, folder: Path, spec: StorageSpec) -> None:
    """Print the table of one store."""
    lake = IcebergLake(place=place, files=files)
    lake.build()
    document = json.loads(place.get(lake.metadata_name))
    document["snapshots"] = document["snapshots"][:-2]
    newest = document["snapshots"][-1]["snapshot-id"]
    document |= {"current-snapshot-id": newest, "refs": {"main": {"type": "branch", "snapshot-id": newest}}}
    place.put([(OLDER, json.dumps(document).encode())])
    print(f"\nIceberg, {where}: {files:,} live files in {lake.manifests:,} manifests and {files // 10:,} orphans")
    print(f"{'cycle':16} {'list s':>8} {'mark s':>8} {'read s':>8} {'judge s':>8} {'rest s':>8} {'all/list':>9}")
    reads = []
    for name, metadata in (
        ("first", OLDER),
        ("after commits", lake.metadata_name),
        ("nothing new", lake.metadata_name),
    ):
        took = asyncio.run(plan(lake, metadata, folder, spec)).timings
        reads.append(took["read"])
        rest = took["look_again"] + took["write"]
        whole = sum(took.values()) / took["list"]
        shown = " ".join(f"{took[phase]:>8.2f}" for phase in ("list", "mark", "read", "judge"))
        print(f"{name:16} {shown} {rest:>8.2f} {whole:>9.2f}", flush=True)
    print(f"reading references after commits: {reads[0] / reads[1]:.0f} times faster than at first")


@contextmanager
def _s3(folder: Path) -> Iterator[tuple[Place, StorageSpec]]:
    with seaweedfs.seaweedfs(folder) as server:
        server.create_bucket(_BUCKET)
        os.environ.update(seaweedfs.ENVIRONMENT)
        place = S3Place(server=server, bucket=_BUCKET, prefix="db/t")
        yield place, StorageSpec(s3=S3Options(endpoint_url=server.endpoint_url, path_style=True))


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1_000_000, help="on local disk")
    parser.add_argument("--files-on-s3", type=int, default=200_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name in ("local", "s3"):
            (folder / name).mkdir()
        compare(chosen.files, "local disk", LocalPlace(root=folder / "lake"), folder / "local", StorageSpec())
        with _s3(folder / "server") as (place, spec):
            compare(chosen.files_on_s3, "S3", place, folder / "s3", spec)


if __name__ == "__main__":
    main()
