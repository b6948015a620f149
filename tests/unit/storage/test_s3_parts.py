"""A prefix divided for other processes: together the parts are the listing, whatever the keys, pages and timing."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders.s3_pages import KEY, Store, listed

from lakesweep.model.errors import OutOfOrder, Unavailable
from lakesweep.model.location import Location
from lakesweep.ports.storage import Part
from lakesweep.storage.s3.shards import MOST_PER_WANTED, Division

EMPTY_SEGMENTS = st.lists(KEY, min_size=1, max_size=2).map("//".join) | KEY.map(lambda key: f"/{key}")


async def divided(store, prefix="", *, wanted=8, may_split=True):
    return await Division(store.fetch, Location("s3", "b", prefix), may_split=may_split).parts(wanted)


async def listed_in_parts(store, parts, concurrency=4):
    """By whoever gets them: each part has travelled."""
    keys = []
    for part in pickle.loads(pickle.dumps(parts)):
        found, _ = await listed(store, part=part, concurrency=concurrency)
        keys += found
    return keys


@settings(max_examples=200, deadline=None)
@given(st.sets(KEY | EMPTY_SEGMENTS, max_size=120), st.integers(1, 7), st.integers(1, 12), st.integers(1, 5))
async def test_every_key_is_in_exactly_one_part(keys, page_size, wanted, concurrency):
    store = Store(keys, page_size=page_size)
    parts = await divided(store, wanted=wanted)
    assert sorted(await listed_in_parts(store, parts, concurrency)) == sorted(keys)
    assert len(parts) <= MOST_PER_WANTED * wanted


@settings(max_examples=200, deadline=None)
@given(st.sets(KEY, max_size=120), st.integers(1, 7), st.integers(1, 12))
async def test_a_store_with_an_order_of_its_own_is_divided_exactly_or_not_at_all(keys, page_size, wanted):
    keys = {key for key in keys if not any(other.startswith(f"{key}/") for other in keys)}
    store = Store(keys, page_size=page_size, by_directory=True)
    try:
        found = await listed_in_parts(store, await divided(store, wanted=wanted), concurrency=1)
    except OutOfOrder:
        return
    assert sorted(found) == sorted(keys)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.sets(KEY, min_size=20, max_size=80), st.integers(2, 6))
async def test_what_comes_and_goes_meanwhile_never_costs_another_key(data, keys, page_size):
    store = Store(keys, page_size=page_size)
    parts = await divided(store, wanted=6)
    gone = data.draw(st.sets(st.sampled_from(sorted(keys)), max_size=10))
    new = data.draw(st.sets(KEY, max_size=10)) - keys
    changed = Store((keys - gone) | new, page_size=page_size)
    try:
        found = await listed_in_parts(changed, parts)
    except OutOfOrder:
        return
    assert len(found) == len(set(found))
    assert keys - gone <= set(found) <= (keys - gone) | new


async def test_a_small_prefix_is_one_part_for_one_request():
    store = Store([f"t/{at}" for at in range(10)], page_size=1000)
    assert await divided(store, "t") == [Part(root=Location("s3", "b", "t"), prefix="t/")]
    assert len(store.requests) == 1


@pytest.mark.parametrize("name", ["{:06d}.parquet", "part-{:05d}-c000.snappy.parquet", "{:08x}"])
async def test_a_long_flat_prefix_is_divided_by_key_range(name):
    keys = ["t/" + name.format(at * 1_000_003 % 2**32 if "x" in name else at) for at in range(3000)]
    store = Store(keys, page_size=10)
    parts = await divided(store, "t", wanted=16)
    assert len(parts) == 16
    assert len(store.requests) < 300
    sizes = [len(await listed_in_parts(store, [part])) for part in parts]
    assert sum(sizes) == 3000
    assert max(sizes) < 3000 / 4


async def test_partitions_and_the_files_above_them_are_parts():
    keys = [f"t/data/p={part}/{at:03d}" for part in range(10) for at in range(50)] + ["t/metadata/v1", "t/_SUCCESS"]
    store = Store(keys, page_size=20)
    parts = await divided(store, "t", wanted=8)
    prefixes = [(part.prefix, part.flat) for part in parts]
    assert ("t/", True) in prefixes
    assert ("t/data/p=7/", False) in prefixes
    assert sorted(await listed_in_parts(store, parts)) == sorted(keys)


async def test_a_store_without_an_order_is_divided_by_directory_only():
    store = Store([f"t/{part}/{at:04d}" for part in "ab" for at in range(500)], page_size=10)
    parts = await divided(store, "t", wanted=50, may_split=False)
    assert [part.prefix for part in parts if not part.flat] == ["t/a/", "t/b/"]
    assert not any("StartAfter" in request for request in store.requests)


async def test_an_error_while_dividing_is_the_callers():
    store = Store([f"t/{at:04d}" for at in range(500)], page_size=10)

    def fail(count, _):
        if count == 5:
            raise Unavailable("s3://b/t", "on purpose")

    store.fault = fail
    with pytest.raises(Unavailable, match="on purpose"):
        await divided(store, "t", wanted=50)
    assert store.in_flight == 0


async def test_a_border_that_is_gone_is_noticed():
    keys = [f"t/{at:04d}" for at in range(500)]
    parts = await divided(Store(keys, page_size=10), "t", wanted=4)
    thinned = Store(set(keys) - set(parts[1].first), page_size=10)
    with pytest.raises(OutOfOrder):
        await listed(thinned, part=parts[0])
    with pytest.raises(OutOfOrder):
        await listed(thinned, part=parts[1])
