"""A few names below an S3 prefix: every one that is there is found, whatever else is, in few requests."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders.s3_pages import Store

from lakesweep.model.errors import Unavailable
from lakesweep.storage.s3.listing import named_directories

NAMES = ["metadata", "_delta_log", ".hoodie", "schema"]
SEGMENT = st.one_of(
    st.sampled_from([*NAMES, *(f"{name}{end}" for name in NAMES for end in "-.0~"), "metadat", "00000", "dt=1", "zz"]),
    st.text(st.sampled_from("._-0ms~é"), min_size=1, max_size=3),
)
KEYS = st.lists(st.lists(SEGMENT, min_size=1, max_size=3).map("/".join), max_size=25)


class Deaf(Store):
    """Ignores StartAfter, as some gateways do."""

    async def fetch(self, **parameters):
        return await super().fetch(**{name: value for name, value in parameters.items() if name != "StartAfter"})


@settings(deadline=None)
@given(keys=KEYS, page_size=st.integers(1, 8), by_directory=st.booleans(), kind=st.sampled_from([Store, Deaf]))
async def test_every_name_that_is_there_is_found_and_no_other(keys, page_size, by_directory, kind):
    stored = [f"t/{key}" for key in keys]
    store = kind([*stored, "t0/metadata/x", "s/schema/x"], page_size=page_size, by_directory=by_directory)
    truth = {name for name in NAMES if any(key.startswith(f"t/{name}/") for key in stored)}
    for sorts in (True, False):
        assert await named_directories(store.fetch, "t/", NAMES, sorts=sorts) == truth
    assert len(store.requests) <= 2 * 2 * len(NAMES)


@pytest.mark.parametrize(
    ("keys", "requests"),
    [
        ([], 1),
        (["data/x", "metadata/x"], 1),
        ([f"{number:05d}.parquet" for number in range(3000)], 2),
        ([f"dt={number}/x" for number in range(3000)], 2),
        ([f"part-{number:05d}.parquet" for number in range(3000)], 2),
    ],
)
async def test_a_usual_directory_takes_one_or_two_requests(keys, requests):
    store = Store([f"t/{key}" for key in keys], page_size=1000)
    await named_directories(store.fetch, "t/", NAMES, sorts=True)
    assert len(store.requests) == requests


async def test_a_page_that_is_empty_and_not_the_last_answers_for_nothing():
    store = Store(["t/schema/x"], page_size=10)

    async def empty_first(**parameters):
        page = await store.fetch(**parameters)
        return dataclasses.replace(page, prefixes=(), next_token="more") if "Delimiter" in parameters else page

    assert await named_directories(empty_first, "t/", NAMES, sorts=True) == {"schema"}


async def test_an_error_is_no_answer():
    store = Store([], page_size=10)

    def fail(*_):
        raise Unavailable("s3://b/t", "on purpose")

    store.fault = fail
    with pytest.raises(Unavailable):
        await named_directories(store.fetch, "t/", NAMES, sorts=True)
