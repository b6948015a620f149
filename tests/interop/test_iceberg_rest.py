"""Iceberg's reference REST catalog, and everything that can go wrong between it and us while we expire snapshots.

After each fault the same law holds: what the table retains can be read, and a run without faults then ends clean.
"""

import itertools
import time
from dataclasses import dataclass

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from tests.interop.product import Product, everything_old
from tests.peers import aging, independent
from tests.peers.fault_proxy import Act, Fault, FaultProxy, fault_proxy

from lakesweep.model.run import Outcome

pytestmark = pytest.mark.xdist_group("catalogs")

_numbers = itertools.count(1)
EXPIRY = "remove-snapshots"
COMMIT_NOT_DONE = [
    Fault(act=Act.ANSWER, status=500, body=EXPIRY),
    Fault(act=Act.ANSWER, status=502, body=EXPIRY),
    Fault(act=Act.ANSWER, status=503, body=EXPIRY),
    Fault(act=Act.ANSWER, status=504, body=EXPIRY),
    Fault(act=Act.DROP, body=EXPIRY),
]
COMMIT_DONE_ANSWER_LOST = [
    Fault(act=Act.APPLY_THEN_ANSWER, status=500, body=EXPIRY),
    Fault(act=Act.APPLY_THEN_ANSWER, status=503, body=EXPIRY),
    Fault(act=Act.APPLY_THEN_ANSWER, status=504, body=EXPIRY),
    Fault(act=Act.APPLY_THEN_DROP, body=EXPIRY),
]


def _name(fault):
    return f"{fault.act}-{fault.status}"


def again(fault):
    """A fresh copy: a fault is used up."""
    return Fault(act=fault.act, status=fault.status, body=fault.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One table in the catalog: `direct` goes around the proxy, the product goes through it."""

    proxy: FaultProxy
    direct: Table
    product: Product
    root: str

    def stored(self) -> frozenset[str]:
        return independent.stored_locally(self.root, older_than=time.time()).files

    def reach(self) -> independent.Reach:
        return independent.by_pyiceberg(self.direct.refresh())

    def lost(self) -> set[str]:
        """Files that the table names and storage does not have."""
        return {path for path in self.reach().files() - self.stored() if not path.endswith("version-hint.text")}

    async def execute(self):
        return await self.product.execute("t", everything_old())


@pytest.fixture
def scene(rest, tmp_path):
    """Five snapshots, of which the newest stays, with a replaced data file among the others."""
    namespace = f"faults{next(_numbers)}"
    catalog = rest.python()
    catalog.create_namespace(namespace)
    rows = pa.table({"id": [1, 2, 3]})
    table = catalog.create_table(f"{namespace}.t", rows.schema)
    for _ in range(3):
        table.append(rows)
    table.overwrite(rows)
    root = f"{rest.warehouse}/{namespace}"
    aging.age(root)
    with fault_proxy(rest.uri) as proxy:
        product = Product(
            data_dir=tmp_path / "state",
            root=root,
            catalog_name="rest",
            catalog={"type": "rest", "uri": proxy.uri},
            namespace=namespace,
        )
        yield Scene(proxy=proxy, direct=table, product=product, root=root)


async def ends_clean(scene):
    """Without faults the cycle finishes, and then nothing is left to do."""
    assert (await scene.execute()).run.outcome is Outcome.DONE
    last = await scene.execute()
    assert last.run.outcome is Outcome.DONE
    assert last.run.plan.candidates.files == 0
    assert not scene.lost()
    assert len(scene.direct.refresh().snapshots()) == 1
    expected = scene.reach().files()
    assert {path for path in scene.stored() - expected if not path.rpartition("/")[2].startswith(".")} == set()


async def test_the_plan_is_the_independent_count(scene):
    reach, current = scene.reach(), scene.direct.current_snapshot().snapshot_id
    stored = independent.stored_locally(scene.root, older_than=time.time() - aging.DAY)

    seen = await scene.product.plan("t", everything_old())

    assert seen.run.outcome is Outcome.DRY_RUN, seen.run.reason
    assert seen.going == reach.snapshots - {current}
    assert seen.files == reach.expected(stored, expire=seen.going)
    assert not scene.proxy.commits()


async def test_a_conflict_is_retried_from_fresh_metadata(scene):
    scene.proxy.inject(Fault(act=Act.ANSWER, status=409, body=EXPIRY, times=2))

    seen = await scene.execute()

    assert seen.run.outcome is Outcome.DONE, seen.run.reason
    assert [commit.status for commit in scene.proxy.commits(EXPIRY)] == [409, 409, 200]
    await ends_clean(scene)


async def test_endless_conflicts_end_the_run_and_delete_nothing(scene):
    before = scene.stored()
    fault = scene.proxy.inject(Fault(act=Act.ANSWER, status=409, body=EXPIRY, times=1000))

    seen = await scene.execute()

    assert seen.run.outcome is Outcome.FAILED
    assert seen.run.expired_snapshots == ()
    assert scene.stored() == before
    fault.times = 0
    await ends_clean(scene)


async def test_an_append_in_between_stays(scene):
    rows = pa.table({"id": [9]})
    scene.proxy.inject(Fault(act=Act.PASS, body=EXPIRY, before=lambda: scene.direct.append(rows)))

    seen = await scene.execute()

    assert seen.run.outcome is Outcome.DONE, seen.run.reason
    assert not scene.lost()
    assert sorted(scene.direct.refresh().scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 9]
    await ends_clean(scene)


async def test_a_rollback_in_between_stays(scene):
    second = scene.direct.snapshots()[1].snapshot_id

    def roll_back():
        scene.direct.manage_snapshots().rollback_to_snapshot(second).commit()

    scene.proxy.inject(Fault(act=Act.PASS, body=EXPIRY, before=roll_back))

    await scene.execute()

    assert scene.direct.refresh().current_snapshot().snapshot_id == second
    assert not scene.lost()
    assert len(scene.direct.scan().to_arrow()) == 6


async def test_a_tag_set_in_between_never_loses_its_files(scene):
    first = scene.direct.snapshots()[0].snapshot_id
    needed = scene.reach().files([first])

    def tag():
        scene.direct.manage_snapshots().create_tag(first, "precious").commit()

    scene.proxy.inject(Fault(act=Act.PASS, body=EXPIRY, before=tag))

    await scene.execute()

    assert needed <= scene.stored()
    assert not scene.lost()


@pytest.mark.parametrize("fault", COMMIT_NOT_DONE, ids=_name)
async def test_a_failed_commit_deletes_nothing_that_is_named(scene, fault):
    before = scene.stored()
    scene.proxy.inject(again(fault))

    seen = await scene.execute()

    assert not scene.lost()
    if seen.run.outcome is not Outcome.DONE:
        assert seen.run.reason
        assert scene.stored() == before
    await ends_clean(scene)


@pytest.mark.parametrize("fault", COMMIT_DONE_ANSWER_LOST, ids=_name)
async def test_a_commit_whose_answer_is_lost_is_found_to_have_happened(scene, fault):
    going = scene.reach().snapshots - {scene.direct.current_snapshot().snapshot_id}
    scene.proxy.inject(again(fault))

    seen = await scene.execute()

    assert seen.run.outcome is Outcome.DONE, seen.run.reason
    assert frozenset(map(int, seen.run.expired_snapshots)) == going
    assert not scene.lost()
    await ends_clean(scene)


@pytest.mark.parametrize("status", [403, 500, 503])
async def test_a_catalog_that_does_not_answer_ends_the_run_and_changes_nothing(scene, status):
    before = scene.stored()
    fault = scene.proxy.inject(Fault(act=Act.ANSWER, status=status, method="GET", path="/tables/t$", times=1000))

    seen = await scene.execute()

    assert seen.run.outcome is Outcome.FAILED
    assert seen.run.reason
    assert scene.stored() == before
    assert not scene.proxy.commits()
    fault.times = 0
    await ends_clean(scene)
