"""Whether a store keeps what is deleted, on every store: as it says when asked, and as its deletes do.

`seaweedfs` is a real server with versions and lifecycle rules.
"""

from __future__ import annotations

import uuid
from contextlib import aclosing

import pytest
from tests.builders.stores import StorageSpec

from lakesweep.model.files import Went
from lakesweep.model.location import Location
from lakesweep.model.store_rules import BucketRules, LeftoverKind, LifecycleRule, Versioning
from lakesweep.ports.deleter import DeleteStatus
from lakesweep.storage import memory
from lakesweep.storage.registry import open_deleter, open_rules, open_writer
from lakesweep.storage.s3.settings import S3Options

SEVEN_DAYS = {
    "ID": "old",
    "Status": "Enabled",
    "Filter": {"Prefix": "w/"},
    "NoncurrentVersionExpiration": {"NoncurrentDays": 7},
}


class Memory:
    """A bucket in memory."""

    def __init__(self) -> None:
        self.root = Location("memory", f"lake-{uuid.uuid4().hex[:12]}", "w/t1")
        self.spec = StorageSpec()
        self._bucket = memory.bucket(self.root.authority)

    def keep_versions(self) -> None:
        self._bucket.rules = BucketRules(versioning=Versioning.ON, lifecycle=self._bucket.rules.lifecycle)

    def add_lifecycle(self) -> None:
        rules = (LifecycleRule(prefix="w/", noncurrent_days=7),)
        self._bucket.rules = BucketRules(versioning=self._bucket.rules.versioning, lifecycle=rules)


class Seaweed:
    """A bucket of a real server."""

    def __init__(self, server) -> None:
        self.root = Location("s3", f"lake-{uuid.uuid4().hex[:12]}", "w/t1")
        self.spec = StorageSpec(s3=S3Options(endpoint_url=server.endpoint_url, path_style=True, delete_concurrency=1))
        server.create_bucket(self.root.authority)
        self.client = server.client()

    def keep_versions(self) -> None:
        self.client.put_bucket_versioning(Bucket=self.root.authority, VersioningConfiguration={"Status": "Enabled"})

    def add_lifecycle(self) -> None:
        self.client.put_bucket_lifecycle_configuration(
            Bucket=self.root.authority, LifecycleConfiguration={"Rules": [SEVEN_DAYS]}
        )


@pytest.fixture(params=["memory", "seaweedfs"])
def bucket(request):
    return Memory() if request.param == "memory" else Seaweed(request.getfixturevalue("seaweedfs"))


async def asked(bucket):
    async with aclosing(open_rules(bucket.spec)) as rules:
        return await rules.rules(bucket.root)


async def put(bucket, *names):
    places = [Location(bucket.root.scheme, bucket.root.authority, f"w/t1/{name}") for name in names]
    async with aclosing(open_writer(bucket.spec)) as writer:
        for place in places:
            await writer.put(place, b"data", create_only=False)
    return [place.raw for place in places]


async def deleted(bucket, *calls):
    async with aclosing(open_deleter(bucket.spec)) as deleter:
        return [await deleter.delete(paths) for paths in calls]


async def test_a_plain_bucket_keeps_nothing_and_gives_no_warning(bucket):
    rules = await asked(bucket)
    assert (rules.versioning, rules.warning) == (Versioning.OFF, None)
    first, second = await put(bucket, "a", "b"), await put(bucket, "c")
    for answers in await deleted(bucket, first, second):
        assert {(one.status, one.went, one.delete_marker) for one in answers} == {
            (DeleteStatus.DELETED, Went.FREED, None)
        }


async def test_a_bucket_with_versions_names_a_marker_for_every_delete(bucket):
    bucket.keep_versions()
    rules = await asked(bucket)
    assert rules.keeps_versions
    pages = await put(bucket, "a", "b"), await put(bucket, "c"), await put(bucket, "line\nbreak")
    answers = [one for page in await deleted(bucket, *pages) for one in page]
    assert {(one.status, one.went) for one in answers} == {(DeleteStatus.DELETED, Went.VERSIONS)}
    assert all(one.delete_marker for one in answers)


async def test_versions_without_a_rule_that_ends_them_are_a_warning(bucket):
    bucket.keep_versions()
    warning = (await asked(bucket)).warning
    assert "NoncurrentVersionExpiration" in warning
    assert bucket.root.authority in warning
    assert "w/t1/" in warning
    bucket.add_lifecycle()
    rules = await asked(bucket)
    assert (rules.noncurrent_days, rules.warning) == (7, None)


async def test_the_marker_that_is_named_is_the_one_that_hides_the_object(seaweedfs):
    bucket = Seaweed(seaweedfs)
    bucket.keep_versions()
    ((answer,),) = await deleted(bucket, await put(bucket, "a"))
    name = {"Bucket": bucket.root.authority, "Key": "w/t1/a"}
    bucket.client.delete_object(**name, VersionId=answer.delete_marker)
    assert bucket.client.get_object(**name)["Body"].read() == b"data"


async def test_a_disk_keeps_no_versions(tmp_path):
    async with aclosing(open_rules(StorageSpec())) as rules:
        assert (await rules.rules(Location.parse(str(tmp_path)))).versioning is Versioning.OFF


async def test_what_a_bucket_keeps_of_deletes_is_counted(bucket):
    bucket.keep_versions()
    paths = await put(bucket, "a", "b")
    await deleted(bucket, paths)
    async with aclosing(open_rules(bucket.spec)) as rules, aclosing(rules.leftovers(bucket.root)) as pages:
        found = [page async for page in pages if page.kind is LeftoverKind.NONCURRENT_VERSIONS]
    assert sorted(one for page in found for one in page.files) == [(path, len(b"data")) for path in paths]
