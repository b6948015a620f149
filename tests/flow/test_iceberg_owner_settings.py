"""Whole cycles against an owner who says something new after the plan, and a catalog that knows more than its file."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.builders.iceberg import LakeTable
from tests.builders.iceberg_flow import clean
from tests.builders.iceberg_wrapped import Wrapped
from tests.unit.iceberg.expiring import prolong
from tests.unit.iceberg.rest_stub import serve

from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import Outcome

POLICY = CleanupPolicy(max_snapshot_age=timedelta(days=1))
YEARS_MS = str(10 * 365 * 86_400_000)


class AfterThePlan(Wrapped):
    """The owner says something between the plan and the commit of its expiry: a large table is planned for hours."""

    def __init__(self, inner, says):
        super().__init__(inner)
        self._says = says

    async def commit_expiry(self, *args):
        self._says()
        return await self._inner.commit_expiry(*args)


def keep_for_years(table: LakeTable) -> None:
    table.set({"history.expire.max-snapshot-age-ms": YEARS_MS})


def keep_many(table: LakeTable) -> None:
    table.set({"history.expire.min-snapshots-to-keep": "100"})


def turn_collection_off(table: LakeTable) -> None:
    table.set({"gc.enabled": "false"})


def prolong_the_tag(table: LakeTable) -> None:
    prolong(table, "old")


@pytest.mark.parametrize("says", [keep_for_years, keep_many, turn_collection_off, prolong_the_tag])
async def test_what_the_owner_says_after_the_plan_still_counts(lake, bench, says):
    table = lake.create()
    first = table.append(1)
    table.overwrite(2)
    table.tag("old", first, max_ref_age_ms=1000)
    ours = lake.format(storage=bench.storage, writer=bench.writer)
    opened = AfterThePlan(await ours.open((await table.open()).ref), lambda: says(table))
    run = await bench.run(opened, POLICY)
    assert run.plan.candidates.files > 0
    assert first in table.snapshot_ids()
    assert table.rows(first) == [{"id": 1, "name": "n1"}]


async def test_an_expiry_is_never_committed_to_another_table_of_the_same_name(lake, bench):
    table = lake.create()
    table.append(1)
    table.overwrite(2)
    other = lake.create("other")
    other.history()

    def swap():
        lake.catalog.rename_table("db.t", "db.aside")
        lake.catalog.rename_table("db.other", "db.t")

    ours = lake.format(storage=bench.storage, writer=bench.writer)
    opened = AfterThePlan(await ours.open((await table.open()).ref), swap)
    run = await bench.run(opened, POLICY)
    assert run.refusal.code == "table_changed"
    assert len(table.snapshot_ids()) == 3


async def test_a_catalog_that_knows_more_snapshots_than_its_file_cleans_nothing(lake, bench):
    """A server may keep metadata to itself and write the file when it likes."""
    table = lake.create()
    table.append(1)
    stale = table.refresh().metadata_location
    table.append(2)
    files = lake.files()
    with serve(lake.another_client()) as server:
        server.load_answer = lambda answer: answer | {"metadata-location": stale}
        lake.properties = {"type": "rest", "uri": server.uri, "name": "lake"}
        run = await clean(bench, table)
    assert run.outcome is Outcome.FAILED
    assert "catalog shows snapshot" in run.reason
    assert lake.files() == files


def a_tag(shown, oldest):
    shown["refs"]["keep"] = {"type": "tag", "snapshot-id": oldest}


def another_retention(shown, _):
    shown["properties"]["history.expire.min-snapshots-to-keep"] = "100"


def no_retention(shown, _):
    del shown["properties"]["history.expire.max-snapshot-age-ms"]


@pytest.mark.parametrize("shows", [a_tag, another_retention, no_retention])
async def test_a_catalog_that_says_more_of_what_stays_than_its_file_cleans_nothing(lake, bench, shows):
    table = lake.create(owner="somebody", **{"history.expire.max-snapshot-age-ms": "1"})
    first = table.append(1)
    table.overwrite(2)
    files = lake.files()

    def answer(told):
        shows(told["metadata"], first)
        return told

    with serve(lake.another_client()) as server:
        server.load_answer = answer
        lake.properties = {"type": "rest", "uri": server.uri, "name": "lake"}
        run = await clean(bench, table, POLICY)
    assert run.outcome is Outcome.FAILED
    assert "catalog shows" in run.reason
    assert lake.files() == files


async def test_a_catalog_that_says_that_collection_is_off_is_believed(lake, bench):
    table = lake.create()
    table.append(1)
    table.overwrite(2)
    files = lake.files()

    def off(answer):
        answer["metadata"]["properties"]["gc.enabled"] = "false"
        return answer

    with serve(lake.another_client()) as server:
        server.load_answer = off
        lake.properties = {"type": "rest", "uri": server.uri, "name": "lake"}
        run = await clean(bench, table, POLICY)
    assert run.refusal.code == "gc_disabled"
    assert lake.files() == files
