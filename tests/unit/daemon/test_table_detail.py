"""The page of one table: why its next cycle comes then, and which snapshots stay."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import TypeAdapter
from tests.builders.small_lake import LocalLake

from lakesweep.admin import documents
from lakesweep.cleanup.report import iso_utc
from lakesweep.daemon import table_status
from lakesweep.daemon.app import App
from lakesweep.daemon.due_times import Schedule
from lakesweep.daemon.known_tables import Entry
from lakesweep.ports.state import DueTime, Hold
from lakesweep.settings.schema import Settings

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
DAILY = Schedule(interval=timedelta(hours=24))
DUE = DueTime(table="acme/d/t", next_due=NOW, last_finished=NOW)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "cleanup_interval_hours = 24, counted from its last cycle"),
        ({"schedule": Schedule(interval=DAILY.interval, cron="0 3 * * *")}, "by its cron expression, 0 3 * * *"),
        ({"chosen": "waste grows slowly"}, "waste grows slowly"),
        ({"due": None}, "it has never run, so it runs at once"),
        (
            {"due": DueTime(table="t", next_due=NOW, last_finished=NOW, failures=3)},
            "the last 3 runs did not end well, so it is retried before its regular time",
        ),
        ({"enabled": False}, "the service does not clean it: orphan_cleanup.enabled is false"),
        (
            {"held": [Hold(scope="a", since=NOW, by="x", ends_at=NOW), Hold(scope="b", since=NOW, by="x")]},
            "it is paused until somebody resumes it; after that it runs when it is due",
        ),
    ],
)
def test_the_next_cycle_is_explained_in_one_sentence(given, told):
    wanted = {"schedule": DAILY, "due": DUE, "held": [], "enabled": True, "chosen": None, **given}
    schedule, due, held = wanted.pop("schedule"), wanted.pop("due"), wanted.pop("held")
    assert table_status.why_then(schedule, due, held, **wanted) == told


async def test_every_snapshot_of_a_table_is_reported_with_what_becomes_of_it(tmp_path):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["t"])
    async with App.open(Settings.model_validate(lake.settings(state={"url": "memory://"}))) as app:
        (work,) = await app.resolve("acme/d/t")
        entry = Entry(work=work, app=app, schedule=DAILY, enabled=True)
        page = await table_status.snapshots(app, entry)
        await app.state.set_hold(Hold(scope="acme/*", since=NOW, by="ann"))
        detail = await table_status.detail(app, entry, NOW)
    TypeAdapter(documents.Snapshots).validate_python(page, strict=True)
    TypeAdapter(documents.TableDetail).validate_python(detail, strict=True)
    assert page["total"] == len(page["snapshots"]) > 0
    assert page["snapshots"] == sorted(page["snapshots"], key=lambda one: one["committed_at"], reverse=True)
    assert page["expiring"] == sum(one["expires"] for one in page["snapshots"])
    assert all(one["why"] for one in page["snapshots"])
    assert [hold["scope"] for hold in detail["holds"]] == ["acme/*"]
    assert detail["next_due"] == iso_utc(NOW)
