"""Pages that repeat what the program knows are held against it: settings, API, runbook, formats."""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from tests.builders.commands import COMMANDS
from tests.docs import settings_page
from tests.unit.cli import examples

from lakesweep.admin import documents
from lakesweep.admin.app import make_app
from lakesweep.admin.problems import Problem
from lakesweep.cleanup import report
from lakesweep.cli.exit_codes import ExitCode
from lakesweep.daemon import request_budget
from lakesweep.formats.delta import protocol
from lakesweep.model import run_document, trash_document
from lakesweep.model.refusal import RefusalCode, consequences
from lakesweep.settings.schema import Settings
from lakesweep.telemetry.metrics import Metrics

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RUNBOOK = (DOCS / "runbook.md").read_text()
API = (DOCS / "api.md").read_text()
CLI = (DOCS / "cli.md").read_text()

COMPUTED = {"ceiling_files", "ceiling_bytes", "ceiling_share", "ceiling_new_place", "not_discovered"}
"""Codes that are not spelled where they are raised."""
SKIPPED = {"disabled", "paused", "discovery_failed", "lease_lost", "failed", "interrupted", request_budget.REASON}
"""Reasons of a skipped table that are no refusal."""


def test_the_settings_page_is_what_the_schema_says():
    assert (DOCS / "settings.md").read_text() == settings_page.page(), "make it anew with `make docs`"


def test_every_line_of_the_settings_page_is_complete():
    rows = [
        re.split(r" (?<!\\)\| ", line.strip("| "))
        for line in settings_page.page().splitlines()
        if line.startswith("| ")
    ]
    assert len(rows) > 50
    assert [row for row in rows if len(row) != 4 or not all(cell.strip() for cell in row)] == []


# --- the API


@functools.cache
def openapi() -> dict:
    return make_app(backend=None, gatekeeper=None).openapi()


def sections(page: str, mark: str) -> dict[str, str]:
    """The text under each heading."""
    parts = re.split(rf"^{mark} (.+)$", page, flags=re.M)
    return dict(zip(parts[1::2], (re.split(r"^#{1,3} ", text, flags=re.M)[0] for text in parts[2::2]), strict=True))


def test_the_api_page_has_every_route_and_no_other():
    routes = {f"{method.upper()} {path}" for path, item in openapi()["paths"].items() for method in item}
    assert set(sections(API, "###")) == routes


def api_examples() -> Iterator[tuple[str, str, dict]]:
    for heading, text in sections(API, "###").items():
        for block in re.findall(r"^```json\n(.*?)^```", text, re.S | re.M):
            yield heading, *heading.lower().split(" ", 1), json.loads(block)


@pytest.mark.parametrize(("heading", "method", "path", "example"), list(api_examples()))
def test_an_example_on_the_api_page_has_the_documented_shape(heading, method, path, example):
    answers = openapi()["paths"][path][method]["responses"]
    schema = next(answers[status] for status in ("200", "202") if status in answers)["content"]["application/json"]
    name = schema["schema"]["$ref"].rpartition("/")[2]
    (home,) = {module for module in (documents, run_document, trash_document) if hasattr(module, name)}
    TypeAdapter(getattr(home, name)).validate_python(example)
    assert set(example) == set(openapi()["components"]["schemas"][name]["properties"]), heading


def test_every_route_that_answers_a_document_has_an_example():
    assert {heading for heading, *_ in api_examples()} == set(sections(API, "###")) - {"GET /metrics"}


def test_the_problem_on_the_api_page_is_one():
    shown = re.search(r"^  ```json\n(.*?)^  ```", API, re.S | re.M)
    assert Problem.model_validate(json.loads(shown[1])).code == "not_running"


# --- the command line


def test_the_plan_on_the_command_line_page_has_the_shape_of_a_real_one():
    shown = json.loads(re.search(r"^```json\n(.*?)^```", CLI, re.S | re.M)[1])
    real = json.loads(json.dumps(report.plan_document(examples.planned(), examples.candidates(1))))
    assert set(shown) == set(real)
    for part in ("expire", "verdicts", "verdict_bytes", "orphans", "unconfirmed"):
        assert set(shown[part]) == set(real[part]), part
    assert set(shown["orphans"]["files"][0]) == set(real["orphans"]["files"][0])


def test_the_command_line_page_has_every_command_and_no_other():
    rows = re.findall(r"^\| (`lakesweep [^|]*) \|", CLI, re.M)
    assert {name for row in rows for name in re.findall(r"`lakesweep ([a-z -]+)`", row)} == set(COMMANDS)


def test_the_command_line_page_has_every_exit_code():
    told = {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", CLI, re.M) for code in row.split(", ")}
    assert told == {int(code) for code in ExitCode}


# --- the runbook


def code_in(node: ast.AST) -> str | None:
    """The code that a call gives to a refusal or a skipped table, where it is spelled there."""
    if not isinstance(node, ast.Call):
        return None
    name = getattr(node.func, "id", getattr(node.func, "attr", None))
    position = {"Refused": 0, "Refusal": 0, "count_skip": 1}.get(name)
    if position is None:
        return None
    named = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
    given = (named or node.args[position:] or [None])[0]
    return spelled(given)


def spelled(given: ast.AST | None) -> str | None:
    """A member of RefusalCode, or the reason of a skipped table, which is plain text."""
    if isinstance(given, ast.Attribute) and given.attr in RefusalCode.__members__:
        return RefusalCode[given.attr].value
    return given.value if isinstance(given, ast.Constant) else None


def codes_of_refused_kinds(tree: ast.AST) -> Iterator[str]:
    """Classes of Refused give their code to its constructor."""
    for kind in ast.walk(tree):
        if isinstance(kind, ast.ClassDef) and any(getattr(base, "id", None) == "Refused" for base in kind.bases):
            for call in ast.walk(kind):
                is_init = isinstance(call, ast.Call) and getattr(call.func, "attr", None) == "__init__"
                if is_init and (code := spelled(call.args[0])):
                    yield code


@functools.cache
def codes() -> set[str]:
    found = set(COMPUTED)
    for source in (ROOT / "service" / "lakesweep").rglob("*.py"):
        tree = ast.parse(source.read_text())
        found |= {code for node in ast.walk(tree) if (code := code_in(node))}
        found |= set(codes_of_refused_kinds(tree))
    return found


def told(page: str) -> set[str]:
    """The codes in the first column of a page's tables."""
    cells = re.findall(r"^\| ((?:`[a-z_]+`(?:, )?)+) \|", page, re.M)
    return {code for cell in cells for code in re.findall(r"`([a-z_]+)`", cell)}


@pytest.mark.xdist_group("codes")  # one process parses the product once for both
def test_codes_are_found_however_they_are_given():
    assert {"missing_clash", "damaged_log", "discovery_failed", "ceiling_share", "plan_only"} <= codes()


@pytest.mark.xdist_group("codes")  # one process parses the product once for both
def test_every_code_that_is_raised_is_in_the_list_of_codes_and_no_other():
    assert codes() - SKIPPED == set(RefusalCode)


def test_the_runbook_says_what_to_do_about_every_code_and_no_other():
    assert told(RUNBOOK) == set(RefusalCode) | SKIPPED | {"settings"}


def test_the_runbook_says_which_refusals_are_tried_again_soon():
    (sentence,) = re.findall(r"exit code 3\. (.*?) are tried again within minutes", RUNBOOK, re.S)
    assert set(re.findall(r"`(\w+)`", sentence)) == {
        code for code in RefusalCode if consequences(code).tried_again_soon
    }


def test_the_guards_on_the_safety_page_exist():
    guards = told(sections((DOCS / "safety.md").read_text(), "##")["Guards"])
    assert "empty_live_set" in guards
    assert guards <= set(RefusalCode)


def alerts() -> set[str]:
    rules = [file.read_text() for file in (ROOT / "deploy" / "prometheus").glob("*.rules.y*ml")]
    return {name for text in rules for name in re.findall(r"^\s*- alert: (\w+)$", text, re.M)}


def test_the_runbook_has_every_alert_with_what_to_do():
    written = sections(RUNBOOK, "###")
    assert alerts()
    assert set(written) == alerts()
    assert [name for name, text in written.items() if "**Look:**" not in text or "**Do:**" not in text] == []


# --- metrics


def test_the_service_page_lists_every_metric_and_no_other():
    exposition = Metrics().exposition().decode()
    exposed = set(re.findall(r"^# TYPE (lakesweep_\w+)(?<!_created) ", exposition, re.M))
    cells = re.findall(r"^\| ((?:`lakesweep_\w+`(?:, )?)+) \|", (DOCS / "service.md").read_text(), re.M)
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} == exposed


# --- formats


def test_the_formats_page_names_every_delta_feature_where_it_belongs():
    text = sections((DOCS / "formats.md").read_text(), "##")["Delta features"]
    understood, harmless, refused = (set(re.findall(r"`([\w-]+)`", part)) for part in text.strip().split("\n\n"))
    assert understood == protocol._UNDERSTOOD
    assert harmless == protocol._NO_EFFECT_ON_FILES
    assert refused == set(protocol._WHY_REFUSED)


# --- dist.toml


def plain(text: str) -> str:
    return " ".join(re.sub(r'[`"]', "", text).split())


def commented_settings() -> Iterator[tuple[tuple[str, ...], str]]:
    """Each key of dist.toml outside of tenants with the comment above it."""
    section: tuple[str, ...] = ()
    comment: list[str] = []
    for line in (ROOT / "dist.toml").read_text().partition("#[[tenants]]")[0].splitlines():
        if line.startswith("# "):
            comment.append(line.removeprefix("# "))
            continue
        if header := re.match(r"\[([\w.]+)\]", line):
            section = tuple(header[1].split("."))
        elif key := re.match(r"#?(\w+) = ", line):
            yield (*section, key[1]), " ".join(comment)
        comment = []


def test_dist_toml_describes_settings_as_the_schema_does():
    told = dict(commented_settings())
    assert len(told) > 40
    meant = {key: plain(described(key)) for key in told}
    assert {key: plain(words) for key, words in told.items()} == meant


def described(key: tuple[str, ...]) -> str:
    """A setting's description in the schema."""
    model = Settings
    for name in key[:-1]:
        model = model.model_fields[name].annotation
    return model.model_fields[key[-1]].description
