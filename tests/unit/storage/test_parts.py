"""Parts of a tree on disk and of a bucket in memory: together they are the listing, and no file is in two."""

import asyncio
import uuid
from contextlib import aclosing
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import examples

from lakesweep.model.location import Location
from lakesweep.storage.local.store import LocalStorage
from lakesweep.storage.memory import Held, MemoryStorage, bucket, forget

SEGMENT = st.text(st.sampled_from("ab1=.- ~é漢"), min_size=1, max_size=3).filter(lambda text: text not in (".", ".."))
KEYS = st.sets(st.lists(SEGMENT, min_size=1, max_size=5).map("/".join), max_size=40)
STRANGE_KEYS = st.sets(st.lists(SEGMENT | st.just(""), min_size=1, max_size=5).map("/".join), max_size=40)


async def paths(batches):
    async with aclosing(batches):
        return [path async for batch in batches for path in batch.column("path").to_pylist()]


async def both_ways(storage, root, wanted):
    parts = await storage.parts(root, wanted)
    in_parts = [path for part in parts for path in await paths(storage.list_part(part))]
    return sorted(await paths(storage.list(root))), sorted(in_parts)


@settings(deadline=None, max_examples=60)
@given(keys=KEYS, wanted=st.integers(1, 30))
def test_parts_of_a_directory_are_the_listing(tmp_path_factory, keys, wanted):
    root = tmp_path_factory.mktemp("tree")
    for key in sorted(keys):
        path = root / key
        if any(parent.is_file() for parent in path.parents) or path.is_dir():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    whole, in_parts = asyncio.run(both_ways(LocalStorage(), Location.parse(str(root)), wanted))
    assert in_parts == whole
    assert whole == sorted(f"file://{path}" for path in root.rglob("*") if path.is_file())


@settings(deadline=None, max_examples=examples(50, soak=1000))
@given(keys=STRANGE_KEYS, wanted=st.integers(1, 30))
def test_parts_of_a_bucket_in_memory_are_the_listing(keys, wanted):
    name = uuid.uuid4().hex
    for key in keys:
        bucket(name).objects[f"t/{key}"] = Held(data=b"x", modified_at=None)
        bucket(name).objects[f"t2/{key}"] = Held(data=b"x", modified_at=None)
    whole, in_parts = asyncio.run(both_ways(MemoryStorage(), Location("memory", name, "t"), wanted))
    forget(name)
    assert in_parts == whole
    assert len(whole) == len({key for key in keys if key and not key.endswith("/")})


async def test_a_link_that_took_the_place_of_a_directory_is_not_followed(tmp_path):
    root, elsewhere = tmp_path / "t", tmp_path / "elsewhere"
    for directory in (root / "a", root / "b", elsewhere):
        directory.mkdir(parents=True)
        (directory / "x").write_bytes(b"x")
    parts = await LocalStorage().parts(Location.parse(str(root)), 2)
    assert {Path(part.prefix).name for part in parts} == {"t", "a", "b"}
    (root / "b" / "x").unlink()
    (root / "b").rmdir()
    (root / "b").symlink_to(elsewhere)
    found = [path for part in parts for path in await paths(LocalStorage().list_part(part))]
    assert found == [f"file://{root}/a/x"]


async def test_the_root_itself_may_be_a_link(tmp_path):
    (tmp_path / "real" / "a").mkdir(parents=True)
    (tmp_path / "real" / "a" / "x").write_bytes(b"x")
    (tmp_path / "real" / "y").write_bytes(b"y")
    (tmp_path / "t").symlink_to(tmp_path / "real")
    whole, in_parts = await both_ways(LocalStorage(), Location.parse(str(tmp_path / "t")), 5)
    assert in_parts == whole == [f"file://{tmp_path}/t/a/x", f"file://{tmp_path}/t/y"]
