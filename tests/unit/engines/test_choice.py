"""Which engine plans a table: by setting, else by the larger of what its metadata and its last run say."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.builders.small_lake import LocalLake
from tests.contract.engine_lake import REF, ListLake

from lakesweep.cleanup import report
from lakesweep.daemon.app import App
from lakesweep.engines.registry import Estimate, choose, estimate
from lakesweep.model.errors import SettingsError
from lakesweep.model.files import DeletionReport, OrphanPlan, Tally, Verdict
from lakesweep.model.run import CleanupRun
from lakesweep.settings.schema import Settings

AT = datetime(2026, 3, 1, 12, 5, tzinfo=UTC)
BOTH = ("inprocess", "spark")


def sized(files):
    return None if files is None else Estimate(files=files, source="its metadata")


@pytest.mark.parametrize(
    ("kind", "files", "available", "expected"),
    [
        ("auto", 99, BOTH, "inprocess"),
        ("auto", None, BOTH, "inprocess"),
        ("auto", 100, BOTH, "spark"),
        ("auto", 100, ("inprocess",), "inprocess"),
        ("inprocess", 10**9, BOTH, "inprocess"),
        ("spark", 1, BOTH, "spark"),
    ],
)
def test_the_engine_is_chosen_by_setting_then_by_size(kind, files, available, expected):
    choice = choose(kind, spark_above_files=100, estimate=sized(files), available=available)
    assert choice.kind == expected
    assert choice.why


def test_an_engine_that_is_not_there_is_a_fault_of_the_settings():
    with pytest.raises(SettingsError, match=r'engine.kind = "spark": not available'):
        choose("spark", spark_above_files=100, estimate=None)


def run_of(live, orphans=0, deleted=0):
    """The document of a run that listed so many files, or that failed before it listed any."""
    plan = OrphanPlan(
        head="h",
        cutoff=AT,
        verdicts={**dict.fromkeys(Verdict, Tally()), Verdict.LIVE: Tally(files=live), Verdict.YOUNG: Tally(files=1)},
        candidates=Tally(files=orphans),
        by_kind={},
        by_reason={},
        missing=(),
        missing_count=0,
        references=live,
        matched=live,
        rows_path="",
        digest="",
        engine="inprocess",
    )
    run = CleanupRun(id="r", table=REF, location=None, started_at=AT, plan=plan if live else None)
    return report.run_document(replace(run, deletion=DeletionReport(deleted=Tally(files=deleted))))


@pytest.mark.parametrize(
    ("metadata", "runs", "expected"),
    [
        (None, [], None),
        (70, [], "about 70 files by its metadata"),
        (None, [run_of(40, 9)], "about 50 files by the run of 2026-03-01 12:05 UTC"),
        (70, [run_of(40)], "about 70 files by its metadata"),
        (70, [run_of(100), run_of(500)], "about 101 files by the run of 2026-03-01 12:05 UTC"),
        (70, [run_of(0), run_of(500)], "about 501 files by the run of 2026-03-01 12:05 UTC"),
        (70, [run_of(80, orphans=900, deleted=900)], "about 81 files by the run of 2026-03-01 12:05 UTC"),
        (70, [run_of(0)], "about 70 files by its metadata"),
    ],
)
async def test_the_larger_of_metadata_and_last_run_counts_and_the_reason_names_it(metadata, runs, expected):
    state = replace((await ListLake().mark()).state, estimated_files=metadata)
    found = estimate(state, runs)
    assert (found and str(found)) == expected


async def test_the_report_of_a_run_says_where_the_figure_came_from(tmp_path):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["one"])
    settings = lake.settings(engine={"kind": "auto", "spark_above_files": 1000}, orphan_cleanup={"dry_run": True})
    async with App.open(Settings.model_validate(settings)) as app:
        (work,) = await app.resolve("acme/d/one")
        whys = [report.run_document(await app.run(work, execute=False))["engine"]["why"] for _ in range(2)]
    assert whys[0] == "neither the table's metadata nor an earlier run says how many files it has"
    assert whys[1].startswith("about 6 files by the run of 20")
    assert whys[1].endswith(" UTC, below spark_above_files = 1000")
