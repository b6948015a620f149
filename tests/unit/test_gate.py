"""The gate before the deleter: nothing outside the tenant's and the table's roots, whatever a plan says."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import examples

from lakesweep.cleanup.delete_gate import GatedDeleter
from lakesweep.model.errors import Refused
from lakesweep.model.location import Location
from lakesweep.storage import memory

TENANT = Location.parse("memory://gate/acme")
TABLE = Location.parse("memory://gate/acme/t1")


@pytest.fixture
def bucket():
    memory.forget("gate")
    bucket = memory.bucket("gate")
    for key in ("acme/t1/x", "acme/t10/x", "acme/t2/x", "other/t1/x"):
        bucket.objects[key] = memory.Held(data=b"x", modified_at=None)
    yield bucket
    memory.forget("gate")


@pytest.fixture
def gated():
    return GatedDeleter(memory.MemoryDeleter(), tenant_root=TENANT, table_roots=[TABLE])


async def test_a_path_inside_goes(bucket, gated):
    await gated.delete(["memory://gate/acme/t1/x"])
    assert "acme/t1/x" not in bucket.objects


@pytest.mark.parametrize(
    "outside",
    [
        "memory://gate/acme/t10/x",
        "memory://gate/acme/t2/x",
        "memory://gate/other/t1/x",
        "memory://gate/acme/t1/../t2/x",
        "memory://gate/acme/t1",
        "memory://elsewhere/acme/t1/x",
        "/acme/t1/x",
    ],
)
async def test_one_path_outside_refuses_the_whole_batch(bucket, gated, outside):
    before = dict(bucket.objects)
    with pytest.raises(Refused, match=r"outside|as a listing gives it"):
        await gated.delete(["memory://gate/acme/t1/x", outside])
    assert bucket.objects == before


async def test_a_table_root_outside_the_tenant_opens_nothing(bucket):
    gated = GatedDeleter(
        memory.MemoryDeleter(), tenant_root=TENANT, table_roots=[Location.parse("memory://gate/other")]
    )
    with pytest.raises(Refused, match="outside the tenant's root"):
        await gated.delete(["memory://gate/other/t1/x"])
    assert "other/t1/x" in bucket.objects


# However an address is spelled, the gate says what the rule says

SEGMENTS = st.sampled_from(
    ["acme", "t1", "t10", "T1", "x", "", ".", "..", ".hidden", "a.b", "...", "é", " ", "%2e%2e", "a?b#c", "a\nb", "\\"]
)
STARTS = {
    "memory": [
        "memory://gate/",
        "memory://gate",
        "MEMORY://gate/",
        "memory:/gate/",
        "memory://gate//",
        "memory://gat/",
    ],
    "s3": [
        "s3://lake/",
        "s3a://lake/",
        "S3://lake/",
        "s3://Lake/",
        "s3://lake2/",
        "s3://lake",
        "s3://lake//",
        "s3:/lake/",
    ],
    "file": ["file:///", "file:/", "file://localhost/", "file://", "FILE:///", "file:////", "file://lake/", "/", ""],
}
ROOTS = {"memory": ("gate", ""), "s3": ("lake", ""), "file": ("", "/")}


def addresses(scheme):
    return st.builds(
        lambda start, parts: start + "/".join(parts), st.sampled_from(STARTS[scheme]), st.lists(SEGMENTS, max_size=5)
    )


def places(scheme):
    authority, before = ROOTS[scheme]
    parts = st.lists(st.sampled_from(["acme", "t1", "x", "", ".hidden", "..", "%2e%2e"]), max_size=3)
    return parts.map(lambda chosen: Location(scheme, authority, before + "/".join(chosen)))


class Asked:
    """A Deleter that keeps what it was asked."""

    def __init__(self):
        self.paths = []

    async def delete(self, paths, conditions=None):
        self.paths += paths
        return []


def inside(path, tenant, tables):
    try:
        location = Location.parse(path)
    except ValueError:
        return False
    return location.raw == path and tenant.contains(location) and any(root.contains(location) for root in tables)


CASES = st.sampled_from(sorted(STARTS)).flatmap(
    lambda scheme: st.tuples(addresses(scheme), places(scheme), st.lists(places(scheme), max_size=2))
)


def test_a_path_goes_if_and_only_if_the_rule_says_so_of_its_address():
    with asyncio.Runner() as runner:

        @settings(max_examples=examples(150, soak=4000), deadline=None)
        @given(case=CASES)
        def holds(case):
            path, tenant, tables = case
            asked = Asked()
            gated = GatedDeleter(asked, tenant_root=tenant, table_roots=tables)
            try:
                runner.run(gated.delete([path]))
            except (Refused, ValueError):
                assert not inside(path, tenant, tables)
                assert asked.paths == []
            else:
                assert inside(path, tenant, tables)
                assert asked.paths == [path]

        holds()


async def test_a_root_that_is_not_normalised_lets_nothing_through():
    asked = Asked()
    odd = Location("MEMORY", "gate", "acme")
    gated = GatedDeleter(asked, tenant_root=odd, table_roots=[odd])
    with pytest.raises(Refused):
        await gated.delete(["MEMORY://gate/acme/x"])
    assert asked.paths == []
