"""The division of a listing into shards: every key exactly once, whatever the keys, the pages and the timing."""

from __future__ import annotations

import asyncio
import dataclasses
import tomllib
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders.s3_pages import KEY, Store, listed, whole

from lakesweep.model.errors import OutOfOrder, StorageError, Unavailable
from lakesweep.settings.schema import Settings
from lakesweep.storage.s3.listing import Listing


@settings(max_examples=300, deadline=None)
@given(st.sets(KEY, max_size=120), st.integers(1, 7), st.integers(1, 9), st.integers())
async def test_every_key_is_listed_exactly_once(keys, page_size, concurrency, seed):
    store = Store(keys, page_size=page_size, seed=seed)
    found, _ = await listed(store, concurrency=concurrency)
    assert sorted(found) == sorted(keys)
    assert store.most_in_flight <= concurrency


@settings(max_examples=300, deadline=None)
@given(st.sets(KEY, max_size=120), st.integers(1, 7), st.integers(1, 9), st.integers())
async def test_a_store_with_an_order_of_its_own_is_listed_exactly_or_refused(keys, page_size, concurrency, seed):
    # A file and a directory of one name cannot stand side by side in such a store.
    keys = {key for key in keys if not any(other.startswith(f"{key}/") for other in keys)}
    store = Store(keys, page_size=page_size, by_directory=True, seed=seed)
    try:
        found, _ = await listed(store, concurrency=concurrency)
    except StorageError:  # which says: set listing_concurrency = 1
        found, _ = await listed(Store(keys, page_size=page_size, by_directory=True), concurrency=1)
    assert sorted(found) == sorted(keys)


class WithoutStartAfter(Store):
    """Begins anew whatever point it is asked for."""

    def _page(self, parameters):
        return super()._page({name: value for name, value in parameters.items() if name != "StartAfter"})


@settings(max_examples=50, deadline=None)
@given(st.sets(KEY, max_size=120), st.integers(1, 7), st.integers(1, 9), st.integers())
async def test_a_store_that_does_not_know_start_after_is_listed_exactly(keys, page_size, concurrency, seed):
    store = WithoutStartAfter(keys, page_size=page_size, seed=seed)

    def stop_going_round(count, _):
        assert count <= 4 * len(keys) + 10

    store.fault = stop_going_round
    found, _ = await listed(store, concurrency=concurrency)
    assert sorted(found) == sorted(keys)


SWAPPED = [f"t/{number:03d}{end}/x" for number in range(200) for end in ("", "-b")]
"""As directories each is listed before the one that comes before it as a key."""


async def test_a_store_that_is_seen_to_break_key_order_is_not_split_any_further():
    found, splits = await listed(Store(SWAPPED, page_size=10, by_directory=True), "t/")
    assert (sorted(found), splits) == (sorted(SWAPPED), 0)


async def test_a_store_that_breaks_key_order_after_it_was_split_is_refused():
    """Each page is in order by itself, and the first hundred keys are in order altogether."""
    keys = [f"t/{number:03d}/x" for number in range(100)] + [key.replace("t/", "t/z") for key in SWAPPED]
    with pytest.raises(OutOfOrder, match="listing_concurrency = 1") as refused:
        await listed(Store(keys, page_size=1, by_directory=True), "t/")
    advice = tomllib.loads(str(refused.value).rpartition("set ")[2])
    assert Settings.model_validate(advice).storage.s3.listing_concurrency == 1
    found, splits = await listed(Store(keys, page_size=1, by_directory=True), "t/", concurrency=1)
    assert (sorted(found), splits) == (sorted(keys), 0)


async def test_a_small_prefix_costs_one_request():
    store = Store([f"t/{at}" for at in range(10)], page_size=1000)
    assert len((await listed(store, "t/"))[0]) == 10
    assert store.requests == [{"Prefix": "t/"}]


@pytest.mark.parametrize("name", ["{:06d}.parquet", "part-{:05d}-c000.snappy.parquet", "{:08x}"])
async def test_a_long_flat_prefix_is_split(name):
    keys = ["t/" + name.format(at * 7919 if "x" in name else at) for at in range(4000)]
    store = Store(keys, page_size=10)
    found, splits = await listed(store, "t/", concurrency=8)
    assert sorted(found) == sorted(keys)
    assert splits >= 7
    assert store.most_in_flight == 8
    assert len(store.requests) < 2 * len(keys) / 10


async def test_a_partitioned_prefix_is_fanned_out():
    keys = [f"t/data/p={part}/{at:03d}" for part in range(10) for at in range(50)]
    store = Store(keys, page_size=20)
    found, _ = await listed(store, "t/", concurrency=8)
    assert sorted(found) == sorted(keys)
    assert {"Prefix": "t/data/p=7/"} in store.requests


async def test_a_store_that_must_not_be_split_is_not():
    store = Store([f"t/{at:04d}" for at in range(500)], page_size=10)
    found, splits = await listed(store, "t/", may_split=False)
    assert (len(found), splits) == (500, 0)
    assert not any("StartAfter" in request for request in store.requests)


@pytest.mark.parametrize("number", [1, 2, 5, 20])
async def test_an_error_in_any_request_ends_the_listing_with_it(number):
    store = Store([f"t/{part}/{at:04d}" for part in "abc" for at in range(300)], page_size=10)

    def fail(count, _):
        if count == number:
            raise Unavailable("s3://b/t", "on purpose")

    store.fault = fail
    with pytest.raises(Unavailable, match="on purpose"):
        await listed(store, "t/")
    assert store.in_flight == 0


async def test_a_store_that_goes_round_in_circles_is_an_error():
    store = Store([f"t/{at:04d}" for at in range(100)], page_size=10)

    async def stuck(**parameters):
        return dataclasses.replace(await store.fetch(Prefix=parameters["Prefix"]), next_token="again")

    listing = Listing(stuck, "s3://b/", whole("t/"), concurrency=1, may_split=True)
    with pytest.raises(StorageError, match="repeats its continuation token"):
        [page async for page in listing.pages()]


async def test_a_consumer_that_waits_holds_the_shards_back():
    store = Store([f"t/{at:05d}" for at in range(5000)], page_size=10)
    listing = Listing(store.fetch, "s3://b/", whole("t/"), concurrency=4, may_split=True)
    async with aclosing(listing.pages()) as pages:
        await anext(pages)
        for _ in range(500):
            await asyncio.sleep(0)
        assert len(store.requests) <= 20
    assert store.in_flight == 0
    assert not [task for task in asyncio.all_tasks() if "list" in task.get_name()]
