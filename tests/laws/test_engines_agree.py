"""Both engines give one plan, to the last file: random tables of every format, whole, short of a file or cut, listed or
read from an inventory."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.builders.small_spark import SMALL_SPARK
from tests.laws import examples
from tests.laws.both_engines import check_that_engines_agree, on_delta, on_iceberg, on_paimon
from tests.laws.worlds import delta, iceberg, paimon
from tests.peers.spark import ON_SPARK

from lakesweep.engines.spark.session import shared_runtime

pytestmark = ON_SPARK

LAWS = settings(
    deadline=None,
    max_examples=examples(3, soak=100),
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # to shrink would take hundreds of jobs on Spark
)
HARMS = st.one_of(st.none(), st.tuples(st.sampled_from(["lost", "lost", "cut"]), st.integers(0, 999)))
"""What befalls the table before it is planned: its n-th data file is gone, or its n-th metadata file is cut."""
INVENTORIES = st.sampled_from([None, "before", "after"])
"""Whether there is a file list instead of a listing, made before or after that."""


@pytest.fixture(scope="module", autouse=True)
def spark_kept():
    """One session for all examples: closing an engine stops Spark only if nobody else uses it."""
    kept = shared_runtime(SMALL_SPARK)
    yield
    asyncio.run(kept.aclose())


@pytest.fixture
def home():
    # Spark does not wait for the other tasks of a job that failed: one of them may still be writing its rows.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        yield Path(directory)


@LAWS
@given(steps=iceberg.STEPS, cut=st.floats(0, 1), keep=st.integers(1, 3), harm=HARMS, inventory=INVENTORIES)
async def test_both_engines_give_the_same_plan_of_an_iceberg_table(home, steps, cut, keep, harm, inventory):
    await check_that_engines_agree(on_iceberg(fresh(home), steps, cut, keep), harm, inventory)


@LAWS
@given(
    steps=delta.STEPS,
    hours=st.integers(1, 40),
    kind=st.sampled_from(delta.KINDS),
    mode=st.sampled_from(["full", "full", "lite"]),
    harm=HARMS,
    inventory=INVENTORIES,
)
async def test_both_engines_give_the_same_plan_of_a_delta_table(home, steps, hours, kind, mode, harm, inventory):
    await check_that_engines_agree(on_delta(fresh(home), steps, hours, kind, mode), harm, inventory)


@LAWS
@given(history=paimon.HISTORIES, keep=st.integers(1, 4), harm=HARMS, inventory=INVENTORIES)
async def test_both_engines_give_the_same_plan_of_a_paimon_table(home, history, keep, harm, inventory):
    await check_that_engines_agree(on_paimon(fresh(home), history, keep), harm, inventory)


def fresh(home: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=home))
