"""Contents that were read before count only if a listing proves that they are stored now."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import md5

import pytest
from tests.builders.cycles import CACHE_KEY

from lakesweep.engines.manifest_cache import FingerprintCache
from lakesweep.model.files import StoredObject
from lakesweep.model.location import Location
from lakesweep.storage.read_cache import MOST_BYTES, ListedContents, RecentObjects

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
DATA = b'{"commitInfo":{}}'
COMMIT = StoredObject(
    location=Location.parse("s3://b/t/_delta_log/00000000000000000007.json"),
    size_bytes=len(DATA),
    modified_at=NOON,
    etag=md5(DATA, usedforsecurity=False).hexdigest(),
)


@pytest.fixture
def cache(tmp_path):
    return FingerprintCache(tmp_path / "cache", limit_bytes=10**9, key=CACHE_KEY)


@pytest.fixture
def contents(cache):
    return ListedContents(lambda: cache)


async def test_what_is_listed_as_the_same_is_known(contents):
    assert await contents.load(COMMIT) is None
    await contents.store(COMMIT, DATA)
    assert await contents.load(COMMIT) == DATA


@pytest.mark.parametrize(
    "changes",
    [
        {"etag": "0" * 32},
        {"etag": None},
        {"size_bytes": len(DATA) + 1},
        {"modified_at": NOON + timedelta(milliseconds=1)},
        {"modified_at": None},
        {"location": Location.parse("s3://b/t/_delta_log/00000000000000000008.json")},
    ],
)
async def test_what_is_listed_as_another_is_read_again(contents, changes):
    await contents.store(COMMIT, DATA)
    assert await contents.load(replace(COMMIT, **changes)) is None


async def test_what_was_replaced_between_listing_and_reading_is_not_remembered(contents):
    await contents.store(COMMIT, DATA[::-1])
    assert await contents.load(COMMIT) is None


@pytest.mark.parametrize("forged", [DATA[::-1], DATA[:-1], b""])
async def test_other_contents_under_the_right_name_are_not_used(cache, contents, forged):
    """Even if they are signed with our own key."""
    key = f"{COMMIT.location.raw} {COMMIT.size_bytes} {COMMIT.modified_at} {COMMIT.etag}"
    cache.store_object(key, DATA)
    assert await contents.load(COMMIT) == DATA
    cache.store_object(key, forged)
    assert await contents.load(COMMIT) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"location": Location.parse("/t/_delta_log/00000000000000000007.json")},
        {"etag": f"{COMMIT.etag}-2"},  # uploaded in parts
        {"etag": COMMIT.etag.upper()},
        {"size_bytes": MOST_BYTES + 1},
        {"size_bytes": 0},
    ],
)
async def test_what_no_etag_proves_is_read_every_time(contents, changes):
    stored = replace(COMMIT, **changes)
    await contents.store(stored, DATA)
    assert await contents.load(stored) is None


async def test_without_a_cache_everything_is_read():
    contents = ListedContents(lambda: None)
    await contents.store(COMMIT, DATA)
    assert await contents.load(COMMIT) is None


def test_recent_objects_are_bounded_and_known_only_to_who_read_them():
    recent = RecentObjects(limit_bytes=10)
    recent.put("acme", "s3://b/a", b"1234")
    recent.put("acme", "s3://b/b", b"1234")
    assert recent.get("acme", "s3://b/a") == b"1234"
    assert recent.get("other", "s3://b/a") is None
    recent.put("acme", "s3://b/c", b"1234")
    assert recent.get("acme", "s3://b/b") is None, "it was used longest ago"
    recent.put("acme", "s3://b/a", b"12")
    recent.put("acme", "s3://b/d", b"1234")
    assert [recent.get("acme", f"s3://b/{name}") for name in "acd"] == [b"12", b"1234", b"1234"]
    recent.put("acme", "s3://b/e", b"12345678901")
    assert recent.get("acme", "s3://b/e") is None
