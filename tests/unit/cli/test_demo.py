"""The demo's checks can fail, and its lake is the one that config/local-demo.toml describes."""

import asyncio
import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from lakesweep.cli.demo import lake as demo_lake
from lakesweep.cli.demo import show, tour
from lakesweep.cli.exit_codes import ExitCode
from lakesweep.cli.main import app as app_of_commands
from lakesweep.daemon import lake_report
from lakesweep.daemon.app import App
from lakesweep.daemon.lake_report import Named
from lakesweep.model.run import Outcome
from lakesweep.model.table import FormatName
from lakesweep.settings.load import load

SAMPLE = Path(__file__).resolve().parents[3] / "config" / "local-demo.toml"


@pytest.fixture
def lake(tmp_path):
    return demo_lake.build(tmp_path / "lake")


def without_expiry(lake):
    """The same lake if nothing of it were past its age."""
    return replace(lake, tables=tuple(replace(table, expiring=frozenset()) for table in lake.tables))


def swept(lake):
    for planted in lake.planted.values():
        for path in planted:
            path.unlink()


def judged(lake, before):
    out = io.StringIO()
    sound = show.afterwards(Console(file=out, width=300), lake, before, (0, 0), [])
    return sound, out.getvalue()


def test_a_lake_that_reads_the_same_rows_without_its_orphans_is_sound(lake):
    lake = without_expiry(lake)
    before = lake.rows()
    swept(lake)
    sound, text = judged(lake, before)
    assert sound
    assert "Something is wrong" not in text


@pytest.mark.parametrize("label", ["acme/shop/orders", "initech/web/visits", "initech/raw/clicks"])
def test_a_reader_that_misses_files_or_a_row_fails_the_demo(lake, label):
    lake = without_expiry(lake)
    before = lake.rows()
    swept(lake)
    one_more = {state: (*ids, 10**9) for state, ids in before[label].items()}
    assert not judged(lake, {**before, label: one_more})[0]
    (place,) = (path for path in lake.root.rglob(label.rpartition("/")[2]) if path.is_dir())
    for file in place.rglob("*.parquet"):
        if "_delta_log" not in file.parts:
            file.unlink()
    sound, text = judged(lake, before)
    assert not sound
    assert f"Something is wrong: {label} does not read as it should" in text


def test_an_orphan_that_is_left_fails_the_demo(lake):
    before = without_expiry(lake).rows()
    sound, text = judged(without_expiry(lake), before)
    assert not sound
    assert all(f"{path} is still there" in text for planted in lake.planted.values() for path in planted)


def test_a_partition_that_did_not_expire_fails_the_demo(lake):
    before = lake.rows()
    swept(lake)
    sound, text = judged(lake, before)
    assert not sound
    assert text.count("Something is wrong") == 1
    assert "initech/web/visits does not read as it should" in text


async def test_make_serve_has_something_to_show(tmp_path, capsys):
    """A newcomer's dashboard: plans with files to delete, one above its ceiling, a damaged table, a ghost, a trend."""
    assert await asyncio.to_thread(tour.build, tmp_path) is ExitCode.DONE
    sample = tmp_path / "local-demo.toml"
    sample.write_text(SAMPLE.read_text().replace("/tmp/lakesweep-demo", str(tmp_path)))
    async with App.open(load(sample)) as app:
        runs = {work.ref.label: await app.run(work, execute=None) for work in await app.resolve(None)}
        ghosts = [ghost for tenant in app.settings.tenants for ghost in await app.ghosts(tenant.id)]
        named = [Named(label=label, format=run.table.format) for label, run in runs.items()]
        told = await lake_report.make(app.settings, app.state, app.clock, named, None)
    planned = {label for label, run in runs.items() if run.outcome is Outcome.DRY_RUN and run.plan.candidates.files}
    assert {label.partition("/")[0] for label in planned} == {"acme", "globex", "initech"}
    assert {run.table.format for run in runs.values() if run.table.label in planned} == set(FormatName)
    refused = {label: run.refusal.code for label, run in runs.items() if label not in planned}
    assert refused == {"acme/shop/orders": "ceiling_files", "globex/iot/damaged": "missing_live_files"}
    assert [Path(ghost.location).name for ghost in ghosts] == ["campaigns"]
    assert (len(told["ghosts"]), len(told["trend"])) == (1, 7 * demo_lake.WEEKS + 1)
    assert told["totals"]["freed_bytes_30_days"] > 0
    assert "--build-only" in (SAMPLE.parents[1] / "Makefile").read_text()


def test_a_lake_that_is_only_built_must_be_kept():
    assert CliRunner().invoke(app_of_commands, ["demo", "--build-only"]).exit_code == ExitCode.USAGE


async def test_the_sample_settings_find_every_table_of_the_kept_lake(lake, tmp_path):
    sample = tmp_path / "local-demo.toml"
    sample.write_text(SAMPLE.read_text().replace("/tmp/lakesweep-demo", str(tmp_path)))
    async with App.open(load(sample)) as app:
        works = await app.resolve(None)
        assert {work.ref.label for work in works} == {table.label for table in lake.tables}
        assert [work.problem for work in works if work.problem] == []
