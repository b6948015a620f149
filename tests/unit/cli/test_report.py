"""`lakesweep report`, for people and as a page of its own."""

from __future__ import annotations

import io
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from rich.console import Console
from tests.builders import reports as lake
from tests.builders.small_lake import LocalLake, small_table, to_toml, write_local
from tests.unit.cli import examples

from lakesweep.cleanup import lake_leftovers
from lakesweep.cleanup.lake_leftovers import TenantLeftovers
from lakesweep.cleanup.lake_report import Price
from lakesweep.cli import report, report_html, report_leftovers
from lakesweep.cli.demo.lake import leave_a_ghost
from lakesweep.cli.main import main
from lakesweep.daemon import lake_report
from lakesweep.model.files import Tally
from lakesweep.model.store_rules import LeftoverKind

HOSTILE = "acme/prod/<script>alert(1)</script>\"'&\x1b[31m"


@pytest.fixture
def config(tmp_path):
    made = LocalLake(root=tmp_path)
    made.add("acme", ["orders", "events"])
    made.add("umbrella", ["virus"], orphans=9)
    path = tmp_path / "lakesweep.toml"
    path.write_text(to_toml(made.settings()))
    return path


def shown(found, width=80) -> str:
    out = io.StringIO()
    report.show(Console(file=out, width=width, markup=False, highlight=False, emoji=False), found, 20)
    return out.getvalue()


class Reader(HTMLParser):
    """What a browser makes of a page: its elements, where it would go, and the text between."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.words.append(data)


def test_ghosts_are_counted_once_somebody_has_looked_for_them(tmp_path, capsys):
    made = LocalLake(root=tmp_path)
    made.add("initech", ["orders"])
    config = tmp_path / "lakesweep.toml"
    config.write_text(to_toml(made.settings()))
    leave_a_ghost(tmp_path / "lake")
    assert main(["report", "--config", str(config)]) == 0
    assert "ghosts: not searched for yet" in capsys.readouterr().out
    assert main(["ghosts", "--config", str(config)]) == 0
    page = tmp_path / "report.html"
    assert main(["report", "--json", "--html", str(page), "--config", str(config)]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["totals"]["ghosts"]["count"] == 13
    assert found["totals"]["ghosts"]["bytes"] == found["ghosts"][0]["bytes"] > 12 * 4096
    assert found["totals"]["waste_bytes"] == 0  # a ghost is no table, and nothing deletes it by itself
    assert "initech/old/campaigns" in page.read_text()
    assert main(["report", "--config", str(config)]) == 0
    assert "ghosts: 49." in capsys.readouterr().out


def test_the_ghosts_of_a_tenant_without_any_table_are_reported(tmp_path, capsys):
    made = LocalLake(root=tmp_path)
    made.add("acme", ["orders"])
    made.add("initech", [])
    config = tmp_path / "lakesweep.toml"
    config.write_text(to_toml(made.settings()))
    leave_a_ghost(tmp_path / "lake")
    assert main(["ghosts", "--config", str(config)]) == 0
    capsys.readouterr()
    assert main(["report", "--json", "--config", str(config)]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [one["tenant"] for one in found["ghosts"]] == ["initech"]
    assert (found["totals"]["ghosts"]["count"], found["totals"]["former_tables"]) == (13, 1)
    assert main(["report", "acme", "--json", "--config", str(config)]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["ghosts"] == []


def test_the_trash_of_a_tenant_without_any_table_is_counted(tmp_path, capsys):
    made = LocalLake(root=tmp_path)
    made.add("acme", ["orders"])
    made.add("initech", ["dropped"], orphans=4, deletion="trash")
    config = tmp_path / "lakesweep.toml"
    config.write_text(to_toml(made.settings()))
    assert main(["run", "initech", "--execute", "--config", str(config)]) == 0
    shutil.rmtree(made.directory("initech/d/dropped"))
    capsys.readouterr()
    assert main(["report", "--fresh", "--json", "--config", str(config)]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["totals"]["leftovers"]["trash"]["count"] == 4
    (part,) = [one for one in found["tenants"] if one["name"] == "initech"]
    assert (part["tables"], part["unclaimed"]["trash"]["count"]) == (0, 4)
    assert main(["report", "--config", str(config)]) == 0
    text = capsys.readouterr().out
    assert "trash: 100 B in 4 files" in text
    assert re.search(r"initech, unclaimed +100 B", text)


def test_all_ghosts_are_counted_although_only_the_largest_are_kept(tmp_path, capsys, monkeypatch):
    made = LocalLake(root=tmp_path)
    made.add("initech", ["orders"])
    for number in range(3):
        write_local(tmp_path / "lake" / "initech" / "old" / str(number), small_table(str(number), live=1, orphans=0))
    config = tmp_path / "lakesweep.toml"
    config.write_text(to_toml(made.settings()))
    monkeypatch.setattr(lake_report, "_GHOSTS_KEPT", 1)
    assert main(["ghosts", "--config", str(config)]) == 0
    capsys.readouterr()
    assert main(["report", "--json", "--config", str(config)]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (len(found["ghosts"]), found["totals"]["former_tables"], found["totals"]["ghosts"]["count"]) == (1, 3, 6)
    page = tmp_path / "report.html"
    assert main(["report", "--html", str(page), "--config", str(config)]) == 0
    assert "and 2 more ghosts" in page.read_text()
    assert main(["report", "--config", str(config)]) == 0
    assert "of 3 former tables" in capsys.readouterr().out


@pytest.mark.parametrize("fresh", [True, False])
def test_a_table_that_cannot_be_read_fails_the_report(config, tmp_path, capsys, fresh):
    (tmp_path / "lake" / "acme" / "tables" / "orders" / "_delta_log" / f"{0:020}.json").write_text("{")
    if not fresh:
        assert main(["plan", "--config", str(config)]) != 0
    assert main(["report", *(["--fresh"] if fresh else []), "--config", str(config)]) == 4
    assert main(["report", "umbrella", "--config", str(config)]) == 0


def test_a_table_that_a_guard_refuses_does_not_fail_the_report(tmp_path, capsys):
    made = LocalLake(root=tmp_path)
    made.add("acme", ["orders"], ceilings={"files": 1})
    config = tmp_path / "lakesweep.toml"
    config.write_text(to_toml(made.settings()))
    assert main(["plan", "--config", str(config)]) == 3
    for options in ([], ["--fresh"]):
        assert main(["report", *options, "--config", str(config)]) == 0


def test_a_report_comes_from_stored_plans_and_says_what_was_never_planned(config, capsys):
    assert main(["report", "--json", "--config", str(config)]) == 0
    before = json.loads(capsys.readouterr().out)
    assert {row["why"]["code"] for row in before["tables"]} == {"never_planned"}
    assert main(["plan", "umbrella", "--config", str(config)]) == 0
    capsys.readouterr()
    assert main(["report", "--json", "--config", str(config)]) == 0
    after = json.loads(capsys.readouterr().out)
    assert [row["table"] for row in after["tables"]] == ["umbrella/d/virus", "acme/d/events", "acme/d/orders"]
    virus = after["tables"][0]
    assert set(virus) >= {"table", "format", "bytes", "files", "cost_per_month", "last_planned_at", "problem"}
    assert set(virus["bytes"]) >= {"live", "young", "orphan", "expired", "foreign"}
    assert virus["files"]["orphan"] == 9
    assert (virus["problem"], after["ghosts"]) == (None, [])
    assert after["totals"]["planned"] == 1


def test_a_fresh_report_plans_every_table_of_the_tenant_first(config, capsys):
    assert main(["report", "acme", "--fresh", "--config", str(config)]) == 0
    text = capsys.readouterr().out
    assert "in 2 tables" in text
    assert "6 files could be deleted" in text
    assert "umbrella" not in text
    assert "never" not in text


def test_a_disk_says_why_versions_are_not_counted_and_reports_its_trash(tmp_path, capsys):
    made = LocalLake(root=tmp_path)
    made.add("acme", ["orders"], orphans=4)
    config = tmp_path / "lakesweep.toml"
    settings = made.settings()
    config.write_text(to_toml({**settings, "orphan_cleanup": {**settings["orphan_cleanup"], "deletion": "trash"}}))
    assert main(["run", "*", "--execute", "--config", str(config)]) == 0
    capsys.readouterr()
    assert main(["report", "--config", str(config)]) == 0
    assert "incomplete uploads: not counted yet; `lakesweep report --fresh` does" in capsys.readouterr().out
    assert main(["report", "--fresh", "--config", str(config)]) == 0
    text = capsys.readouterr().out
    assert "trash: 100 B in 4 files" in text
    assert "noncurrent versions and incomplete uploads: not counted; acme: a disk has neither" in text
    assert re.search(r"acme/d/orders +100 B +- +- +4 ", text)


def counted(kind, tenant="acme", *, found=None, **given):
    told = {"counted_at": "2026-03-10T12:00:00Z", "complete": found is not None, "problem": None, "requests": 3}
    return {"tenant": tenant, "kind": kind, "found": found, "removed_after_days": None, "advice": None, **told, **given}


def beside(by_owner, *counts, tables=("acme/prod/orders",)):
    """A report with what was counted beside its tables."""
    tenants = {"acme": TenantLeftovers(counts=counts, by_owner=by_owner)}
    return lake_leftovers.added(lake.report(*map(lake.known, tables)), tenants, lake.FREE)


def test_a_page_that_cannot_be_written_is_bad_usage(tmp_path, capsys):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["t"])
    config = tmp_path / "lakesweep.toml"
    config.write_text(to_toml(lake.settings()))
    for page, why in ((tmp_path / "none" / "r.html", "there is no directory"), (tmp_path, "it cannot be written")):
        assert main(["report", "--html", str(page), "--config", str(config)]) == 2
        assert f"lakesweep: --html {page}: {why}" in capsys.readouterr().err


def test_a_count_that_was_stopped_says_at_least_and_why():
    some, stopped = {"count": 2, "bytes": 2048}, "counting stopped after 1,000 requests"
    found = beside(
        {"acme/prod/orders": {LeftoverKind.NONCURRENT_VERSIONS: Tally(files=2, bytes=2048)}},
        counted("noncurrent_versions", found=some, complete=False, problem=stopped, removed_after_days=7),
        counted("incomplete_uploads", problem="it is not allowed"),
        counted("trash", found={"count": 0, "bytes": 0}),
    )
    text = shown(found)
    assert all(len(line) <= 80 for line in text.splitlines())
    words = " ".join(text.split())
    assert "at least 2.0 KiB in 2 files, which a lifecycle rule removes after 7 days; acme: counting stopped" in words
    assert "incomplete uploads: not counted; acme: it is not allowed" in words
    assert "counted 2026-03-10 12:00 UTC with 9 requests" in words
    assert re.search(r"acme/prod/orders +0 B +2.0 KiB +- +2 ", text)


def test_what_is_nobodys_has_rows_of_its_own_and_is_text_on_the_page():
    one = {LeftoverKind.TRASH: Tally(files=1, bytes=10)}
    owners = {HOSTILE: one, "acme/prod": one, "acme": one, "acme/prod/not-reported": one}
    found = beside(owners, counted("trash", found={"count": 4, "bytes": 40}), tables=(HOSTILE,))
    names = [row.owner for row in report_leftovers.rows(found)]
    assert sorted(names) == sorted([HOSTILE, "acme, unclaimed", "acme/prod, unclaimed"])
    assert found["totals"]["leftovers"]["bytes"] == 30
    assert found["datasets"][0]["leftovers"]["bytes"] == 20
    reader = Reader()
    reader.feed(report_html.page(found))
    assert "script" not in reader.tags
    assert "acme/prod, unclaimed" in reader.words


def test_a_tenant_that_does_not_exist_is_a_usage_error(config, capsys):
    assert main(["report", "acne", "--config", str(config)]) == 2
    assert "acne" in capsys.readouterr().err


def test_a_page_stands_alone_and_shows_names_as_text(config, tmp_path, capsys):
    target = tmp_path / "report.html"
    assert main(["report", "--fresh", "--html", str(target), "--config", str(config)]) == 0
    assert capsys.readouterr().out == ""
    found = lake.report(
        lake.known(HOSTILE, examples.refused("ceiling_files", "<img src=x onerror=alert(1)>")),
        runs=[lake.figures(3, 100, table=HOSTILE), lake.figures(1, 50, 50, table=HOSTILE)],
    )
    for page in (target.read_text(), report_html.page(found)):
        reader = Reader()
        reader.feed(page)
        assert not reader.tags & {"script", "img", "link", "iframe", "a", "form"}
        assert [one for one in reader.attributes if one[0].startswith("on") or one[0] in ("src", "href")] == []
        assert not re.search(r"url\(|@import|https?:", page)
    assert "<script>alert(1)</script>" in "".join(reader.words)
    assert "\x1b" not in page
    assert "svg" in reader.tags


def test_nothing_important_breaks_at_eighty_columns():
    name = "acme/production/orders-of-customers"
    run = lake.planned(10**13, 10**12)
    runs = [lake.figures(9, 4096, table=name), lake.figures(3, 10**6, table=name), lake.figures(0, 2048, table=name)]
    price = Price(per_gb_month=23.0, currency="USD")
    text = shown(lake.report(lake.known(name, run, held="we move it"), runs=runs, price=price))
    assert all(len(line) <= 80 for line in text.splitlines())
    assert re.search(rf"{name} +10.0 TiB +\w+ +paused", text)
    words = " ".join(text.split())
    assert "deletable since 2026-03-01: 4.0 KiB at first, at most 976.6 KiB on 2026-03-07, 2.0 KiB now" in words


def test_a_table_that_waits_for_a_person_says_why_and_what_to_do():
    run = replace(examples.refused("ceiling_files", "too many files"), id="0123456789abcdef")
    text = shown(lake.report(lake.known(run=run)))
    assert "1 table waiting for a person" in text
    assert "too many files" in text
    assert "`lakesweep show 01234567` shows the files of this plan; `lakesweep approve 01234567` allows it" in text
