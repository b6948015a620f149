"""The rules parse, fire when they should, and ask only for what the service exposes."""

from __future__ import annotations

import re

import pytest
import yaml
from tests.builders.prometheus_rules import faults
from tests.deploy.promql import asked
from tests.deploy.tools import DEPLOY, REPOSITORY, run
from tests.servers.prometheus import program

from lakesweep.model.refusal import Alert, RefusalCode, consequences

RULES = DEPLOY / "prometheus" / "lakesweep.rules.yaml"
TESTS = DEPLOY / "prometheus" / "lakesweep.test.yaml"


def rules(key):
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if key in rule]


def recorded_series():
    """Labels by recorded series: those that its outermost aggregation keeps."""
    return {rule["record"]: asked(rule["expr"]).labels for rule in rules("record")}


def test_promtool_accepts_the_rules():
    checked = run(program("promtool"), "check", "rules", RULES)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_promtool_refuses_a_broken_rule(tmp_path):
    broken = tmp_path / "broken.yaml"
    broken.write_text(RULES.read_text().replace("> 3 * 86400", "> > 86400"))
    assert run(program("promtool"), "check", "rules", broken).returncode != 0


@pytest.mark.parametrize("alert", [alert for alert in Alert if alert is not Alert.MISSING_FILES])
def test_an_alert_is_about_the_refusals_that_lead_to_it(alert):
    (rule,) = [rule for rule in rules("alert") if rule["alert"] == alert]
    (codes,) = re.findall(r'reason=~"([^"]+)"', rule["expr"])
    assert sorted(codes.split("|")) == sorted(code.value for code in RefusalCode if consequences(code).alert is alert)


def test_missing_files_have_an_alert_of_their_own_by_their_number():
    (rule,) = [rule for rule in rules("alert") if rule["alert"] == Alert.MISSING_FILES]
    assert "lakesweep_missing_live_files" in rule["expr"]
    assert [code for code in RefusalCode if consequences(code).alert is Alert.MISSING_FILES] == ["missing_live_files"]


def test_every_alert_fires_when_it_should_and_only_then():
    tested = run(program("promtool"), "test", "rules", TESTS.name, cwd=TESTS.parent)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_a_rule_that_no_longer_fires_fails_its_test(tmp_path):
    (tmp_path / RULES.name).write_text(RULES.read_text().replace("|ceiling_share", "|limit_share"))
    (tmp_path / TESTS.name).write_text(
        yaml.safe_dump({**(tests := yaml.safe_load(TESTS.read_text())), "tests": [case_about(tests, "ceiling")]})
    )
    tested = run(program("promtool"), "test", "rules", TESTS.name, cwd=tmp_path)
    assert tested.returncode != 0
    assert "LakesweepPlanWaitsForApproval" in tested.stdout + tested.stderr


def case_about(tests, word):
    return next(case for case in tests["tests"] if word in case["name"])


@pytest.mark.parametrize(
    "rule", rules("alert") + rules("record"), ids=lambda rule: rule.get("alert", rule.get("record"))
)
def test_rules_ask_only_for_what_is_exposed(rule):
    assert faults(rule["expr"], recorded_series()) == []


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("sum(lakesweep_files_deletd_total)", "no series lakesweep_files_deletd_total"),
        ("sum by (tennant) (lakesweep_files_deleted_total)", "no label tennant"),
        ('lakesweep_tables_skipped_total{reason="lost_lease"}', "reason is never lost_lease"),
        ('lakesweep_cleanup_runs_total{status="ok"}', "status is never ok"),
        ("sum by (tenant) (lakesweep_state_store_up)", "no label tenant"),
    ],
)
def test_a_slip_in_a_name_is_noticed(expression, fault):
    (found,) = faults(expression, recorded_series())
    assert found.startswith(fault)


@pytest.mark.parametrize("rule", rules("alert"), ids=lambda rule: rule["alert"])
def test_every_alert_is_tested_and_says_what_to_do(rule):
    assert re.search(rf"\b{rule['alert']}\b", TESTS.read_text()), "it has no unit test"
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["annotations"].keys() == {"summary", "description"}
    assert f"\n### {rule['alert']}\n" in (REPOSITORY / "docs" / "runbook.md").read_text()
