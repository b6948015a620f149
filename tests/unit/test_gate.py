"""The gate before the deleter: nothing outside the tenant's and the table's roots, whatever a plan says."""

import pytest

from lakesweep.cleanup.deleter import GatedDeleter
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
    with pytest.raises(Refused, match=r"outside|plain listed"):
        await gated.delete(["memory://gate/acme/t1/x", outside])
    assert bucket.objects == before


async def test_a_table_root_outside_the_tenant_opens_nothing(bucket):
    gated = GatedDeleter(
        memory.MemoryDeleter(), tenant_root=TENANT, table_roots=[Location.parse("memory://gate/other")]
    )
    with pytest.raises(Refused, match="outside the tenant's root"):
        await gated.delete(["memory://gate/other/t1/x"])
    assert "other/t1/x" in bucket.objects
