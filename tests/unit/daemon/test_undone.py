"""What a restore cannot do by itself is told, with the command that does it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lakesweep.daemon.taken_run import Undone, look_for_head
from lakesweep.model.errors import Unavailable
from lakesweep.model.run import Restored

HEAD = "s3://lake/acme/orders/metadata/00007-a.metadata.json"


def taken(**fields):
    document = {"table": "acme/shop/orders", "format": "iceberg", "outcome": "done", "head": HEAD}
    return {**document, "expired_snapshots": ["1", "2", "3", "4"], **fields}


def undone(document, **more):
    return Undone(result=Restored(of="r1"), paused=True, run=None, taken=document, **more)


def test_expired_iceberg_snapshots_name_their_metadata_and_the_command():
    remark = undone(taken()).remark
    assert f"(1, 2, 3, …); {HEAD} still has them" in remark
    assert f"register_table(table => 'orders_restored', metadata_file => '{HEAD}')" in remark
    for other in (taken(expired_snapshots=[]), taken(format="paimon"), taken(head=None)):
        assert undone(other).remark is None


def test_metadata_that_is_gone_is_not_offered_to_be_registered():
    remark = undone(taken(), head_stands=False).remark
    assert f"{HEAD}, which had them, is gone" in remark
    assert "register_table" not in remark


@pytest.mark.parametrize(("there", "answer"), [(True, True), (False, False), (None, True)])
async def test_metadata_that_cannot_be_looked_for_counts_as_there(there, answer):
    async def stands(path):
        assert path == HEAD
        if there is None:
            raise Unavailable(path, "no answer")
        return there

    assert await look_for_head(taken(), SimpleNamespace(stands=stands)) is answer
