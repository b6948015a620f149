"""Every panel of the dashboard can be read and asks only for what the service exposes."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from tests.builders.prometheus_rules import faults
from tests.deploy.promql import asked
from tests.deploy.tools import DEPLOY, run
from tests.servers.daemon import make_place
from tests.servers.prometheus import program, scraping

DASHBOARD = json.loads((DEPLOY / "grafana" / "lakesweep.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES = {"$tenant": ".*", "$__rate_interval": "5m", "$__range": "7d"}
UNITS = {"short", "bytes", "s", "string"}


def queries():
    return [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]


def filled(expression):
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def check(expression, directory):
    """What promtool says of an expression; empty if nothing."""
    rules = directory / "queries.yaml"
    rule = {"record": "dashboard:query", "expr": filled(expression)}
    rules.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": [rule]}]}))
    checked = run(program("promtool"), "check", "rules", rules)
    return checked.stderr if checked.returncode else ""


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_says_what_it_shows_and_in_which_unit(panel):
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["datasource"]["uid"] == "${datasource}"
    assert panel["targets"]
    assert all(target["legendFormat"] for target in panel["targets"]) or panel["type"] == "table"


def test_panels_have_places_and_numbers_of_their_own():
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken = set()
    for place in (panel["gridPos"] for panel in DASHBOARD["panels"]):
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken
        taken |= cells


@pytest.mark.parametrize(("title", "expression"), queries())
def test_queries_ask_only_for_what_is_exposed(title, expression):
    assert faults(expression, {}) == []
    assert asked(expression).series, "it asks for nothing"


def test_legends_name_labels_that_their_queries_keep():
    for panel in PANELS:
        for target in panel["targets"]:
            for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                kept = asked(target["expr"]).labels | {"instance"}
                assert label in kept, f"{panel['title']}: {label}"


def test_the_tenant_variable_asks_for_a_label_that_is_there():
    (tenant,) = [one for one in DASHBOARD["templating"]["list"] if one["name"] == "tenant"]
    assert tenant["definition"] == "label_values(lakesweep_tables_known, tenant)"
    assert faults("sum by (tenant) (lakesweep_tables_known)", {}) == []


def test_promtool_parses_every_query(tmp_path):
    groups = [
        {"name": "dashboard", "rules": [{"record": "dashboard:query", "expr": filled(expression)}]}
        for _, expression in queries()
    ]
    rules = tmp_path / "queries.yaml"
    rules.write_text(yaml.safe_dump({"groups": [{**group, "name": f"q{n}"} for n, group in enumerate(groups)]}))
    checked = run(program("promtool"), "check", "rules", rules)
    assert checked.returncode == 0, checked.stderr


def test_a_query_with_a_slip_is_noticed(tmp_path):
    assert check("sum(rate(lakesweep_files_deleted_total[$__rate_interval])", tmp_path) != ""
    assert check("sum(rate(lakesweep_files_deleted_total[$__rate_interval]))", tmp_path) == ""


@pytest.mark.xdist_group("service")
def test_a_real_prometheus_answers_every_query_about_a_running_service(tmp_path):
    program("prometheus")
    place = make_place(tmp_path)
    with place.service() as api, scraping(f"127.0.0.1:{place.metrics_port}", tmp_path) as prometheus:
        api.knows("acme/prod/orders", "umbrella/prod/virus")
        assert api.run("acme/prod/orders", execute=True)["outcome"] == "done"
        prometheus.await_total("sum(lakesweep_files_deleted_total)", 12)
        prometheus.await_total("min(count_over_time(lakesweep_batch_size_count[1m])) >= bool 3", 1)
        answers = {(title, expression): prometheus.ask(filled(expression)) for title, expression in queries()}
    silent = {title for (title, _), answer in answers.items() if not answer}
    # Nothing was skipped, refused or reloaded here.
    assert silent <= {
        "Skipped tables by reason",
        "Files the store would not delete",
        "Leases lost and tables busy",
        "Bugs and reloads",
    }
