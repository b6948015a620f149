"""Live files outside the places that are listed: kept, counted, and said to be neither there nor missing."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import replace

from tests.builders.cycles import CACHE_KEY
from tests.builders.delta import DeltaWriter, LocalPlace, look, sweep
from tests.builders.iceberg_flow import clean, live_files
from tests.builders.stores import LocalStorage, StorageSpec
from tests.unit.cli import examples

from lakesweep.cleanup import unlisted
from lakesweep.cleanup.report import plan_document, run_document
from lakesweep.engines import registry as engines
from lakesweep.formats import registry as formats
from lakesweep.model.location import Location
from lakesweep.storage import memory
from lakesweep.storage.registry import open_storage
from lakesweep.storage.spec import Confine


def said(run):
    """What both documents say, which must be the same."""
    documents = run_document(run)["missing"], plan_document(run, [])["missing"]
    assert documents[0] == documents[1]
    return documents[0]


async def test_files_added_from_elsewhere_are_counted(lake, bench, tmp_path):
    table = lake.create()
    table.append(1)
    (own,) = live_files(table)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    added = [elsewhere / f"{number}.parquet" for number in range(2)]
    for path in added:
        shutil.copy(own, path)
    assert said(await clean(bench, table)) == {"count": 0, "files": [], "unverified": 0}
    table.refresh().add_files([f"file://{path}" for path in added])
    for _ in range(2):
        run = await clean(bench, table)
        assert said(run) == {"count": 0, "files": [], "unverified": 0}
    added[1].unlink()
    lost = await clean(bench, table)
    assert said(lost) == {"count": 1, "files": [f"file://{added[1]}"], "unverified": 0}
    assert lost.refusal.code == "missing_live_files"


async def test_files_of_a_delta_table_at_absolute_paths_elsewhere_are_counted(tmp_path):
    place = LocalPlace(tmp_path / "lake" / "t")
    writer = DeltaWriter(place)
    writer.create()
    writer.add("part-1.parquet")
    outside = [f"{tmp_path}/source/part-{number}.parquet" for number in (2, 3, 4)]
    writer.add(*outside[:2], write=False)
    lost = sorted(f"file://{path}" for path in outside[:2])
    assert said((await sweep(place)).run) == {"count": 2, "files": lost, "unverified": 0}
    writer.checkpoint()
    writer.add(outside[2], write=False)
    writer.remove(outside[0])
    swept = await sweep(place)
    lost = sorted(f"file://{path}" for path in outside[1:])
    assert said(swept.run) == {"count": 2, "files": lost, "unverified": 0}


async def test_what_may_not_be_looked_at_or_does_not_answer_stays_unverified():
    plan = replace(
        examples.plan(),
        unverified=3,
        unverified_first="hdfs://nn/x",
        unverified_shown=("hdfs://nn/x", "memory://other/there", "memory://gone/a"),
    )
    memory.bucket("other").objects["there"] = memory.Held(data=b"x", modified_at=None)
    confine = Confine(places=(Location.parse("memory://other"),))

    async def told(spec, *, outdated):
        async def is_outdated():
            return outdated

        async with contextlib.aclosing(open_storage(spec)) as storage:
            found = await unlisted.outside_files(plan, storage, (), is_outdated)
        return found.missing_count - plan.missing_count, found.unverified, found.unverified_first

    assert await told(StorageSpec(), outdated=False) == (1, 1, "hdfs://nn/x")
    assert await told(StorageSpec(), outdated=True) == (0, 2, "hdfs://nn/x")  # others expired meanwhile
    assert await told(StorageSpec(confine=confine), outdated=False) == (0, 2, "hdfs://nn/x")
    many = replace(plan, unverified=2000)
    async with contextlib.aclosing(open_storage(StorageSpec())) as storage:
        assert await unlisted.outside_files(many, storage, (), None) is many


async def test_a_second_look_that_fails_leaves_the_file_unverified():
    """The end of its address is tried below the roots, and those may not answer either."""
    plan = replace(
        examples.plan(), unverified=1, unverified_first="memory://gone/a", unverified_shown=("memory://gone/a",)
    )
    confine = Confine(places=(Location.parse("memory://gone"),))
    async with contextlib.aclosing(open_storage(StorageSpec(confine=confine))) as storage:
        found = await unlisted.outside_files(plan, storage, (Location.parse("memory://closed/t/"),), None)
    assert (found.missing_count, found.unverified) == (plan.missing_count, 1)


async def test_what_is_only_counted_is_not_among_the_references_of_a_source(tmp_path):
    """They are asked again before a delete: an address elsewhere would keep whatever has its name."""
    place = LocalPlace(tmp_path / "lake" / "t")
    writer = DeltaWriter(place)
    writer.create()
    writer.add("part-1.parquet")
    writer.add(f"{tmp_path}/source/part-2.parquet", write=False)
    writer.checkpoint()
    sources = (await look(writer)).references.sources
    engine = engines.open_inprocess(
        storage=LocalStorage(), decoder=formats.decoder, data_dir=tmp_path, memory_limit="256MB", cache_key=CACHE_KEY
    )
    async with contextlib.aclosing(engine):
        found = [path async for _, batch in engine.read_references(sources) for path in batch["path"].to_pylist()]
    assert f"file://{place.path}/part-1.parquet" in found
    assert all(path.startswith(f"file://{place.path}/") for path in found)
