"""Live files outside the places that are listed: kept, counted, and said to be neither there nor missing."""

from __future__ import annotations

import contextlib
import shutil

from tests.builders.cycles import CACHE_KEY
from tests.builders.delta import DeltaWriter, LocalPlace, look, sweep
from tests.builders.iceberg_flow import clean, live_files
from tests.builders.stores import LocalStorage

from lakesweep.cleanup.report import plan_document, run_document
from lakesweep.engines import registry as engines
from lakesweep.formats import registry as formats


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
        assert said(run) == {"count": 0, "files": [], "unverified": 2}
        assert run.plan.unverified_first == f"file://{added[0]}"
    added[1].unlink()
    assert said(await clean(bench, table))["unverified"] == 2  # nobody can tell: the place is not looked at


async def test_files_of_a_delta_table_at_absolute_paths_elsewhere_are_counted(tmp_path):
    place = LocalPlace(tmp_path / "lake" / "t")
    writer = DeltaWriter(place)
    writer.create()
    writer.add("part-1.parquet")
    outside = [f"{tmp_path}/source/part-{number}.parquet" for number in (2, 3, 4)]
    writer.add(*outside[:2], write=False)
    assert said((await sweep(place)).run) == {"count": 0, "files": [], "unverified": 2}
    writer.checkpoint()
    writer.add(outside[2], write=False)
    writer.remove(outside[0])
    swept = await sweep(place)
    assert said(swept.run) == {"count": 0, "files": [], "unverified": 2}
    assert swept.run.plan.unverified_first == f"file://{outside[1]}"


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
