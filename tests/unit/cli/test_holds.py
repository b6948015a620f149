"""What is paused: only what there is, told with its reason, and with the table's last outcome beside it."""

from __future__ import annotations

import json

import pytest
from tests.builders.small_lake import LocalLake


@pytest.fixture
def lake(tmp_path):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["orders", "events"])
    return lake


@pytest.mark.parametrize("scope", ["acme/d/oders", "acme/d/x*"])
def test_a_pause_that_would_hold_nothing_is_reported_and_not_made(scope, lake, call):
    code, _, told = call("pause", scope)
    assert code == 2
    assert f"no table matches {scope!r}: " in told
    assert ("did you mean 'acme/d/orders'?" in told) == (scope == "acme/d/oders")
    assert json.loads(call("holds", "--json")[1])["holds"] == []
    assert call("pause", scope, "--force")[0] == 0
    assert [hold["scope"] for hold in json.loads(call("holds", "--json")[1])["holds"]] == [scope]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["pause", "acne"], "acme"),
        (["stop", "acme/dd"], "acme/d"),
        (["ghosts", "acne"], "acme"),
        (["map", "acne"], "acme"),
        (["run", "--ghosts", "acne"], "acme"),
        (["runs", "acne"], "acme"),
        (["runs", "--table", "acme/d/oders"], "acme/d/orders"),
    ],
)
def test_a_misspelled_name_is_reported_with_the_one_that_is_near(words, meant, lake, call):
    call("plan", "acme/d/orders")
    code, shown, told = call(*words)
    assert code == (0 if words[0] == "runs" else 2)
    assert f"did you mean {meant!r}?" in shown + told
    assert words[-1] in shown + told


@pytest.mark.parametrize("scope", ["acme", "acme/d", "*", "acme/d/orders", "acme/*/ord*", "location/delta//x"])
def test_what_names_a_table_a_dataset_or_a_tenant_is_held(scope, call):
    assert call("pause", scope)[0] == 0


def test_a_catalog_that_does_not_answer_is_no_reason_against_a_pause(lake, call):
    away = {"id": "away", "format": "iceberg", "catalog": {"type": "rest", "uri": "http://127.0.0.1:1"}}
    lake.tenants["acme"]["datasets"].append(away)
    assert call("pause", "acme/away/ns.orders")[0] == 0


def test_a_stop_that_reaches_no_table_says_so_and_stands(call):
    code, out, told = call("stop", "acme/d/oders")
    assert code == 2
    assert "stopped and held" in out
    assert "did you mean 'acme/d/orders'?; the hold is still in place" in told
    assert "acme/d/oders" in call("holds")[1]


def test_holds_are_listed_with_reason_end_and_who(call):
    assert call("holds")[:2] == (0, "nothing is held\n")
    call("pause", "acme/d/orders", "--reason", "backfill until Friday")
    (hold,) = json.loads(call("holds", "--json")[1])["holds"]
    assert (hold["scope"], hold["reason"], hold["ends_at"]) == ("acme/d/orders", "backfill until Friday", None)
    assert hold["by"]
    assert hold["since"].endswith("Z")
    shown = call("holds")[1]
    assert "backfill until Friday" in shown
    assert "when resumed" in shown


def test_a_pause_with_an_end_is_listed_with_it_and_never_shortens_another(call):
    code, out, _ = call("pause", "acme/d/orders", "--for", "3d")
    assert (code, "held until" in out) == (0, True)
    first = json.loads(call("holds", "--json")[1])["holds"][0]["ends_at"]
    assert "UTC" in call("holds")[1]
    assert "when resumed" not in call("holds")[1]
    call("pause", "acme/d/orders", "--for", "1h")
    assert json.loads(call("holds", "--json")[1])["holds"][0]["ends_at"] == first
    call("pause", "acme/d/orders", "--until", "2099-12-24T18:00+02:00")
    assert json.loads(call("holds", "--json")[1])["holds"][0]["ends_at"] == "2099-12-24T16:00:00.000Z"
    code, out, told = call("run", "acme/d/orders", "--execute")
    assert code == 3
    assert "until 2099-12-24 16:00 UTC" in out + told
    call("pause", "acme/d/orders")
    assert "when resumed" in call("holds")[1]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("--for", "3"), "expected a span"),
        (("--for", "-3d"), "expected a span"),
        (("--until", "tomorrow"), "expected a time"),
        (("--until", "2020-01-01"), "has passed"),
        (("--until", "9999-12-31T23:59-05:00"), "expected a time"),
        (("--until", "0001-01-01T00:00+05:00"), "expected a time"),
        (("--until", "2099-01-01", "--for", "3d"), "either --until or --for"),
    ],
)
def test_an_end_that_says_nothing_clear_pauses_nothing(given, told, call):
    code, _, said = call("pause", "acme/d/orders", *given)
    assert code == 2
    assert told in said
    assert json.loads(call("holds", "--json")[1]) == {"holds": [], "ended": []}


def test_every_command_says_held_of_what_a_hold_covers(call):
    assert call("pause", "acme")[1] == "acme: held\n"
    assert "acme: resumed" in call("resume", "acme")[1]
    assert call("holds")[1] == "nothing is held\n"
    assert "there is no hold 'acme'; nothing is held" in call("resume", "acme")[2]
    for command in ("pause", "stop"):
        assert "nothing to hold: 'nobody' names no configured tenant or dataset" in call(command, "nobody")[2]


def test_resume_says_whose_hold_it_lifts(call):
    call("pause", "acme/d/orders", "--reason", "backfill")
    (hold,) = json.loads(call("holds", "--json")[1])["holds"]
    code, out, _ = call("resume", "acme/d/orders")
    assert (code, "acme/d/orders: resumed" in out) == (0, True)
    assert f"lifted the hold of {hold['by']} (backfill)" in " ".join(out.split())


def test_a_paused_table_still_shows_its_last_outcome(call):
    assert call("run", "acme/d/orders", "--execute")[0] == 0
    call("pause", "acme/d/orders")
    assert call("run", "acme/d/orders", "--execute")[0] == 3
    line = next(line for line in call("tables")[1].splitlines() if line.startswith("acme/d/orders"))
    assert "done, held" in line


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("acme/d/ordrs", "acme/d/orders"),
        ("acmee/d/orders", "acme/d/orders"),
        ("acme/e/orders", "acme/d/orders"),
        ("acmee", "acme"),
    ],
)
def test_a_slip_in_a_name_is_answered_with_the_name_that_is_near(given, meant, call):
    code, _, told = call("plan", given)
    assert code == 2
    assert f"did you mean {meant!r}?" in told


def test_a_slip_in_a_tenant_is_answered_for_tokens_and_settings_too(call):
    assert "did you mean 'acme'?" in call("token", "new", "--tenant", "acmee")[2]
    assert "did you mean 'acme/d/*'?" in call("settings", "acmee/d/*")[2]
