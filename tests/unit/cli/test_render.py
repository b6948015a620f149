"""What people see. Everything that matters is in the words, with colours and without."""

import io
from dataclasses import replace

import pytest
from rich.console import Console
from tests.unit.cli import examples

from lakesweep.cli import render, screen, summary
from lakesweep.model.files import Candidate, Reason, Tally
from lakesweep.model.run import SharedFiles
from lakesweep.model.snapshot import ExpiryPlan, KeptSnapshot
from lakesweep.model.table import FormatName


def plain(show, *values, **options) -> str:
    out = io.StringIO()
    show(Console(file=out, width=100_000, markup=False, highlight=False, emoji=False), *values, **options)
    return out.getvalue()


def on_terminal(show, *values, **options) -> str:
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=True, markup=False, highlight=False, color_system="truecolor")
    show(console, *values, **options)
    return out.getvalue()


@pytest.mark.parametrize("shown", ["plan", "run"])
def test_a_table_that_uses_files_of_this_one_is_named(shown):
    shared_files = tuple(
        SharedFiles(table=f"acme/prod/clone-{n}", files=n, first=f"s3://lake/{n}.parquet") for n in (1, 2)
    )
    run = replace(examples.planned(), shared_files=shared_files)
    text = plain(render.show_plan, run, []) if shown == "plan" else plain(render.show_run, run, execute=False)
    assert "acme/prod/clone-1 uses 1 file of this table, kept for it, first s3://lake/1.parquet" in text
    assert "acme/prod/clone-2 uses 2 files of this table" in text


def test_a_plan_says_what_stays_what_goes_and_why():
    text = plain(render.show_plan, examples.planned(), examples.candidates(2))
    for words in (
        "acme/prod/orders  iceberg",
        "s3://lake/acme/orders",
        "engine inprocess: 1200 files fit in one process",
        "1 snapshot to expire, 2 to keep",
        "tag release",
        "old-branch",
        "1,200",
        "3.0 GiB",
        "inside the grace period",
        "orphan-1.parquet",
        "2026-02-26 12:00 UTC",
        "… and 1 more file",
    ):
        assert words in text


def test_a_plan_with_nothing_to_delete_says_so():
    assert "nothing to delete" in plain(render.show_plan, examples.planned(plan=examples.plan(0)), [])


def test_snapshots_partitions_and_orphans_are_counted_apart():
    reasons = {Reason.EXPIRED: Tally(files=1, bytes=100), Reason.UNREFERENCED: Tally(files=2, bytes=2048)}
    expiry = replace(examples.EXPIRY, partitions=("dt=1", "dt=2"), partition_files=Tally(files=7, bytes=7168))
    run = examples.planned(plan=replace(examples.plan(3), by_reason=reasons), expiry=expiry)
    lines = [line.split() for line in plain(render.show_plan, run, []).splitlines()]
    assert ["expired", "snapshot", "1", "100", "B"] in [line[:5] for line in lines]
    assert ["expired", "partitions", "7", "7.0", "KiB"] in [line[:5] for line in lines]
    assert ["unreferenced", "2", "2.0", "KiB"] in [line[:4] for line in lines]


def test_an_expired_snapshot_says_what_of_it_stays():
    tagged = replace(examples.EXPIRY.expire[0], pins=("tag release",))
    expiry = replace(examples.EXPIRY, expire=(tagged,))
    assert "UTC; tag release stays" in plain(render.show_plan, examples.planned(expiry=expiry), [])


def test_a_delta_table_has_versions():
    delta = replace(examples.REF, format=FormatName.DELTA)
    assert "1 version to expire, 2 to keep" in plain(render.show_plan, examples.planned(table=delta), [])
    assert "expired 1 version" in plain(render.show_run, replace(examples.done(), table=delta), execute=True)


def test_a_dry_run_says_how_many_partitions_would_go():
    expiry = replace(examples.EXPIRY, partitions=("dt=1",))
    text = plain(render.show_run, examples.planned(expiry=expiry), execute=False)
    assert "would expire 1 snapshot, 1 partition and delete 3 files (3.0 KiB)" in text


def test_a_path_can_be_copied_from_a_narrow_terminal():
    long = replace(examples.candidates(1)[0], path="s3://lake/" + "x" * 300)
    assert long.path in on_terminal(render.show_plan, examples.planned(), [long])


def test_without_a_terminal_there_is_no_escape_and_no_cut():
    long = replace(examples.candidates(1)[0], path="s3://lake/" + "x" * 5000)
    text = plain(render.show_plan, examples.refused(), [long])
    assert "\x1b" not in text
    assert long.path in text


def test_a_terminal_has_colours_and_keeps_every_letter_of_a_path():
    long = replace(examples.candidates(1)[0], path="s3://lake/" + "x" * 300)
    text = on_terminal(render.show_plan, examples.planned(), [long])
    assert "\x1b[" in text
    assert text.count("x") >= 300


def test_a_path_is_shown_as_it_is_and_never_interpreted():
    odd = replace(examples.candidates(1)[0], path="s3://lake/[bold]a[/bold] \x1b[31m:smile:\nb")
    text = plain(render.show_plan, examples.planned(), [odd])
    assert r"s3://lake/[bold]a[/bold] \x1b[31m:smile:\nb" in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("count", "sentence"),
    [
        (1, "1 live file is outside the listed places and was not checked, first s3://elsewhere/1.parquet"),
        (
            1200,
            "1,200 live files are outside the listed places and were not checked, first s3://elsewhere/1.parquet",
        ),
    ],
)
def test_live_files_that_nobody_looked_for_are_counted(count, sentence):
    plan = replace(examples.plan(), unverified=count, unverified_first="s3://elsewhere/1.parquet")
    planned = examples.planned(plan=plan)
    assert sentence in plain(render.show_plan, planned, [])
    assert sentence in plain(render.show_run, planned, execute=False)
    assert "not checked" not in plain(render.show_plan, examples.planned(plan=examples.plan()), [])


def test_a_plan_without_a_listing_does_not_count_the_files_that_stay():
    plan = replace(examples.plan(), listed=False)
    text = plain(render.show_plan, examples.planned(plan=plan), [])
    assert "may be deleted" in text
    assert "referenced by what stays" not in text
    assert "not listed: unreferenced and missing files wait for the next listing" in text


def test_missing_live_files_are_named():
    missing = tuple(f"s3://lake/acme/orders/data/{number}.parquet" for number in range(25))
    text = plain(render.show_plan, examples.planned(plan=examples.plan(missing=missing)), [])
    assert "25 live files missing from storage" in text
    assert missing[0] in text
    assert "… and 5 more files" in text


@pytest.mark.parametrize("show", [plain, on_terminal])
def test_a_refusal_says_its_code_its_reason_and_what_to_do(show):
    text = show(render.show_plan, examples.refused("plan_only", "there is no catalog"), [])
    assert "REFUSED: plan_only" in text
    assert "there is no catalog" in text
    assert "Configure the table's catalog" in text


def test_a_refused_plan_is_still_shown_in_full():
    assert "orphan-0.parquet" in plain(render.show_plan, examples.refused(), examples.candidates(1))


def test_a_failure_before_the_plan_never_looks_like_an_empty_plan():
    text = plain(render.show_plan, examples.failed(), [])
    assert "FAILED" in text
    assert "the catalog does not answer" in text
    assert "nothing to delete" not in text


def test_a_run_says_what_it_did():
    text = plain(render.show_run, examples.done(), execute=True)
    for words in ("done", "expired 1 snapshot", "deleted 2 files (2.0 KiB): data 2", "1 file already gone"):
        assert words in text
    assert "1 file spared" in text


def test_a_dry_run_says_what_it_would_do_and_how_to_do_it():
    text = plain(render.show_run, examples.planned(), execute=False)
    assert "nothing was changed" in text
    assert "would expire 1 snapshot and delete 3 files (3.0 KiB)" in text
    assert "again with --execute" in text


def test_a_dry_run_against_the_operator_s_settings_names_the_source():
    text = plain(render.show_run, examples.planned(), execute=True)
    assert "own dry_run = true overrides --execute" in text


def test_what_could_not_be_deleted_is_named():
    text = plain(render.show_run, examples.half_done(), execute=True)
    assert "1 file could not be deleted" in text
    assert "orphan-2.parquet: AccessDenied: no" in text
    assert "FAILED" in text


def test_a_long_list_is_cut_and_counted():
    kept = tuple(KeptSnapshot(id=str(number), why="young") for number in range(50))
    text = plain(render.show_plan, examples.planned(expiry=ExpiryPlan(head="h", keep=kept)), [])
    assert "… and 30 more snapshots" in text


def test_a_skipped_expiry_says_why():
    expiry = ExpiryPlan(head="h", skipped="the catalog cannot commit version 3")
    assert "expiry is skipped: the catalog cannot commit version 3" in plain(
        render.show_plan, examples.planned(expiry=expiry), []
    )


def test_several_tables_are_summed_up():
    text = plain(summary.show_sum, [examples.done(), examples.refused(), examples.failed()])
    assert text.strip() == "3 tables, 1 refused, 1 failed, 6 files (6.0 KiB) deletable, 2 files (2.0 KiB) deleted"
    assert plain(summary.show_sum, [examples.done()]) == ""


def test_an_orphan_of_unknown_age_is_shown():
    row = Candidate(path="s3://x", size_bytes=1, modified_at=None, etag=None, kind="data", reason=Reason.EXPIRED)
    assert "expired" in plain(render.show_plan, examples.planned(), [row])


@pytest.mark.parametrize(
    ("size_bytes", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (5 * 1024**4, "5.0 TiB"),
        (2**60, "1024.0 PiB"),
    ],
)
def test_sizes_have_units(size_bytes, shown):
    assert screen.size(size_bytes) == shown
