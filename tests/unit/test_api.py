"""The Python API: plans and runs as values, from whatever the caller has, without printing and without traces."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import re
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.builders.small_lake import LocalLake, small_table, to_toml, write_local

import lakesweep
from lakesweep import api
from lakesweep.cli.main import main
from lakesweep.python import calls


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LAKESWEEP_STORAGE__LOCAL__AGE_BY", "modification")
    monkeypatch.delenv("LAKESWEEP_CONFIG", raising=False)


@pytest.fixture
def place(tmp_path):
    place = tmp_path / "lake" / "orders"
    write_local(place, small_table("orders"))
    return place


def test_a_plan_prints_nothing(place):
    """In a process of its own: commands of other tests send the log to standard error."""
    program = "import sys, lakesweep; lakesweep.plan(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", program, str(place)], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_plan_of_a_location_needs_nothing_and_leaves_nothing(place, tmp_path):
    plan = lakesweep.plan(str(place))
    assert plan.orphans.schema.names == ["path", "size_bytes", "modified_at", "kind", "reason"]
    assert plan.orphans.num_rows == 3
    assert plan.orphans.schema.field("modified_at").type == pa.timestamp("us", tz="UTC")
    assert (plan.summary.files, plan.summary.verdicts["live"], plan.refused) == (3, 3, None)
    assert str(plan.summary).startswith("0 snapshots to expire, 3 files to delete (")
    assert not (tmp_path / "home").exists()


def test_a_plan_in_python_is_the_document_of_the_command_line(place, capsys):
    document = lakesweep.plan(place).to_dict()
    capsys.readouterr()  # a test before this one may have set the log back to standard output
    assert main(["plan", str(place), "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["tables"]
    changing = ("run_id", "last_listed_at", "requests")  # by hand the plan is stored in a database
    assert json.loads(json.dumps({k: v for k, v in document.items() if k not in changing})) == {
        k: v for k, v in told.items() if k not in changing
    }


def test_calls_work_inside_a_running_event_loop(place):
    async def notebook():
        loop_is_free = asyncio.get_running_loop()
        found = lakesweep.plan(place), await lakesweep.aplan(place)
        assert asyncio.get_running_loop() is loop_is_free
        return found

    blocking, own = asyncio.run(notebook())
    assert blocking.orphans == own.orphans


def test_a_run_deletes_only_when_requested(place):
    dry = lakesweep.run(place)
    assert (dry.outcome, dry.summary.done, dry.summary.files) == ("dry_run", False, 3)
    assert len(list(place.glob("*failed*"))) == 3
    done = lakesweep.run(place, execute=True)
    assert (done.outcome, done.summary.done, done.summary.files) == ("done", True, 3)
    assert done.to_dict()["deleted"]["count"] == 3
    assert not list(place.glob("*failed*"))
    assert len(list(place.glob("*live*"))) == 2
    assert lakesweep.run(place, execute=True).summary.files == 0


@pytest.mark.parametrize("wrong", [np.True_, 1, 0, "yes", None])
def test_a_switch_is_true_or_false_and_nothing_like_it(wrong, place, tmp_path):
    for call in (
        lambda: lakesweep.run(place, execute=wrong),
        lambda: lakesweep.run([place], execute=wrong),
        lambda: asyncio.run(lakesweep.arun(place, execute=wrong)),
    ):
        with pytest.raises(TypeError, match=re.escape(f"execute must be True or False, not {wrong!r}")):
            call()
    for call in (lambda: lakesweep.report(fresh=wrong), lambda: asyncio.run(lakesweep.areport(fresh=wrong))):
        with pytest.raises(TypeError, match="fresh must be True or False"):
            call()
    assert not (tmp_path / "home").exists()  # nothing has begun, so no run is recorded


async def test_the_async_twins_give_the_same(place):
    run = await lakesweep.arun(place)
    assert run.orphans.num_rows == 3
    explained = await lakesweep.aexplain(place / "part-00000-live.parquet", table=place)
    assert explained.verdict == "live"


def test_an_explanation_says_why_a_file_stays(place):
    explained = lakesweep.explain(place / "part-00000-failed.parquet", table=place)
    assert explained.verdict == "orphan"
    assert explained.evidence
    assert explained.to_dict()["path"].endswith("part-00000-failed.parquet")
    assert "orphan" in explained._repr_html_()


def test_a_list_gives_a_result_for_each_table_once(place, tmp_path):
    other = tmp_path / "lake" / "other"
    write_local(other, small_table("other", orphans=1))
    plans = lakesweep.plan([place, str(other), f"{place}/"])
    assert [plan.orphans.num_rows for plan in plans] == [3, 1]
    assert plans.orphans.num_rows == 4
    assert (plans.summary.files, plans.refused) == (4, {})
    assert [table["orphans"]["count"] for table in plans.to_dict()["tables"]] == [3, 1]
    assert lakesweep.plan([]).orphans.num_rows == 0


def test_a_configured_table_is_planned_by_its_name_and_its_settings(tmp_path):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["one", "two"], ceilings={"files": 1})
    file = tmp_path / "lakesweep.toml"
    file.write_text(to_toml(lake.settings()))
    plan = lakesweep.plan("acme/d/one", config=file)
    assert (plan.table, plan.refused.code) == ("acme/d/one", "ceiling_files")
    by_place = lakesweep.plan(lake.directory("acme/d/one"), config=file)
    assert by_place.table == "acme/d/one"
    assert list(lakesweep.plan(["acme"], config=file).refused) == ["acme/d/one", "acme/d/two"]
    with pytest.raises(lakesweep.LakesweepError, match="names 2 tables"):
        lakesweep.plan("acme", config=file)
    run = lakesweep.run("acme/d/one", execute=True, config=file)
    assert (run.outcome, run.refused.code, run.summary.files) == ("refused", "ceiling_files", 0)
    assert type(run.to_dict()["refused"]["code"]) is str, "YAML writes no enum"


def test_the_safe_minimums_hold_in_python_too(place):
    with pytest.raises(lakesweep.LakesweepError, match="below 24 h"):
        lakesweep.plan(place, grace=timedelta(hours=1))
    with pytest.raises(lakesweep.LakesweepError, match="retain_last"):
        lakesweep.plan(place, retain_last=0)
    for wrong in ("5", True, 1.5):
        with pytest.raises(lakesweep.LakesweepError, match="retain_last must be a whole number"):
            lakesweep.plan(place, retain_last=wrong)
    with pytest.raises(lakesweep.LakesweepError, match="older_than"):
        lakesweep.plan(place, older_than=timedelta(days=-1))
    with pytest.raises(lakesweep.LakesweepError, match="timedelta"):
        lakesweep.plan(place, older_than=3)
    with pytest.raises(TypeError, match="older"):
        lakesweep.plan(place, older=timedelta(days=3))
    old = datetime.now(tz=UTC) - datetime(2026, 1, 1, tzinfo=UTC)
    assert lakesweep.plan(place, grace=old + timedelta(days=1)).orphans.num_rows == 0


def test_the_command_line_takes_the_same_rules_for_one_call(place, capsys):
    def orphans(*words):
        code = main(["plan", str(place), "--json", *words])
        told = capsys.readouterr()
        return code, json.loads(told.out)["tables"][0]["orphans"]["count"] if code == 0 else told.err

    assert orphans("--grace", "4000d") == (0, 0)
    assert orphans("--older-than", "3d", "--retain-last", "5") == (0, 3)
    assert orphans("--older-than", "3")[0] == 2
    assert "expected a number and m, h, d or w" in orphans("--older-than", "soon")[1]
    code, told = orphans("--grace", "1h")
    assert (code, "below 24 h" in told) == (2, True)


def test_explain_takes_the_rules_that_plan_takes(place, capsys):
    orphan = lakesweep.plan(place).orphans["path"][0].as_py()

    def verdict(*words):
        assert main(["explain", orphan, "--target", str(place), "--json", *words]) == 0
        return json.loads(capsys.readouterr().out)["verdict"]

    assert (verdict(), verdict("--grace", "4000d")) == ("orphan", "young")
    assert lakesweep.explain(orphan, table=place, grace=timedelta(days=4000)).verdict == "young"
    assert main(["explain", orphan, "--target", str(place), "--grace", "1h"]) == 2
    assert "below 24 h" in capsys.readouterr().err


def test_every_function_names_its_rules_in_its_signature():
    rules = ["older_than", "retain_last", "grace", "config", "format", "root"]
    for name in ("plan", "aplan", "run", "arun", "explain", "aexplain"):
        parameters = inspect.signature(getattr(lakesweep, name)).parameters
        assert [one for one in parameters if one not in {"x", "execute", "path", "table"}] == rules, name


def test_what_names_no_table_raises_a_sentence(tmp_path):
    with pytest.raises(lakesweep.LakesweepError, match="no such directory"):
        lakesweep.plan(tmp_path / "nothing")
    with pytest.raises(TypeError, match="not int"):
        lakesweep.plan(7)
    with pytest.raises(lakesweep.LakesweepError, match="'csv': expected iceberg, paimon, delta"):
        lakesweep.plan(tmp_path, format="csv")


def test_a_notebook_shows_names_escaped(tmp_path):
    place = tmp_path / "lake" / "<b>orders"
    write_local(place, small_table("orders"))
    html = lakesweep.plan(place)._repr_html_()
    assert "<b>orders" not in html
    assert "&lt;b&gt;orders" in html


def test_a_deltalake_table_is_its_location(tmp_path):
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(tmp_path / "t", pa.table({"id": [1, 2]}))
    plan = lakesweep.plan(deltalake.DeltaTable(tmp_path / "t"))
    assert (plan.format, plan.refused, plan.summary.verdicts["live"]) == ("delta", None, 2)


@pytest.fixture
def iceberg(tmp_path):
    from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - slow to import

    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", pa.schema([("id", pa.int64())]))
    for number in range(3):
        table.append(pa.table({"id": [number]}))
    yield table
    catalog.close()


def test_a_pyiceberg_table_is_cleaned_through_its_own_catalog(iceberg, tmp_path):
    plan = lakesweep.plan(iceberg, older_than=timedelta(0), retain_last=1)
    assert (plan.format, plan.refused) == ("iceberg", None)
    assert not (tmp_path / "home").exists()
    run = lakesweep.run(iceberg, execute=True, older_than=timedelta(0), retain_last=1)
    assert run.outcome == "done", run.reason
    assert run.to_dict()["expired_snapshots"] == plan.to_dict()["expire"]["snapshots"]
    assert iceberg.refresh().scan().to_arrow().num_rows == 3


def test_importing_the_package_imports_nothing_heavy():
    code = "import lakesweep, sys; assert not {'pyarrow', 'pydantic'} & set(sys.modules); print(dir(lakesweep))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "'plan'" in done.stdout
    assert set(lakesweep.__all__) - {"__version__"} == set(api.__all__)


def test_the_examples_on_the_python_page_run(place, iceberg, monkeypatch):
    page = Path("docs/python.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.S | re.M)
    assert len(blocks) >= 4
    names = {"table": iceberg, "place": str(place)}
    for block in blocks:
        code = block.replace("s3://lake/shop/orders", str(place))
        if "await " in code:
            lines = "".join(f"    {line}\n" for line in code.splitlines())
            code = f"import asyncio\nasync def cell():\n{lines}\nasyncio.run(cell())\n"
        exec(compile(code, "docs/python.md", "exec"), names)


def test_a_report_is_that_of_the_command_line(tmp_path, capsys):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["one", "two"])
    file = tmp_path / "lakesweep.toml"
    file.write_text(to_toml(lake.settings(logging={"level": "error"})))
    fresh = lakesweep.report("acme/d/one", fresh=True, config=file)
    assert [table["table"] for table in fresh.tables] == ["acme/d/one"]
    assert fresh.tables[0]["waste_bytes"] > 0
    assert "acme/d/one" in fresh._repr_html_()
    whole = lakesweep.report(config=file)
    assert "acme/d/two" in whole.refused  # never planned
    assert asyncio.run(lakesweep.areport(config=file)).tables == whole.tables
    assert lakesweep.report(["acme/d/one"], config=file).tables == lakesweep.report("acme/d/one", config=file).tables
    assert main(["report", "--json", "--config", str(file)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert json.loads(json.dumps(whole.to_dict()))["tables"] == told["tables"]
    with pytest.raises(lakesweep.LakesweepError, match="nothing to report"):
        lakesweep.report()


def test_the_log_of_a_call_goes_to_the_callers_logging(place, caplog):
    caplog.set_level(logging.INFO, logger="lakesweep")
    lakesweep.run(place)
    assert any("run_finished" in record.message for record in caplog.records)


def test_every_public_name_is_explained():
    for name in set(lakesweep.__all__) - {"__version__"}:
        assert getattr(lakesweep, name).__doc__, name


def test_ctrl_c_reaches_the_work_as_the_users_stop():
    seen = []

    async def work(stop):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        await asyncio.wait_for(stop.wait(), 10)
        seen.append(stop.by_user)

    with pytest.raises(KeyboardInterrupt):
        calls.blocking(work)
    assert seen == [True]
