"""What follows from a refusal is known for each code, and never more than was meant."""

import json

from lakesweep.model.errors import Refused
from lakesweep.model.refusal import Alert, RefusalCode, consequences, remedy


def codes_that(what):
    return {code.value for code in RefusalCode if getattr(consequences(code), what)}


def test_a_person_may_approve_a_plan_above_a_ceiling_or_a_ghosts_only():
    ceilings = {"ceiling_files", "ceiling_bytes", "ceiling_share", "ceiling_new_place"}
    assert codes_that("approvable") == {*ceilings, "ghost_not_approved"}


def test_what_only_a_person_can_judge_holds_the_table():
    assert codes_that("holds_table") == {"ref_lost", "ref_unverified", "log_set_back"}


def test_what_goes_away_by_itself_is_tried_again_soon():
    assert codes_that("tried_again_soon") == {"busy", "neighbours_unknown", "table_changed"}


def test_only_what_is_no_news_is_silent():
    assert codes_that("silent") == {"busy", "held"}


def test_what_a_person_may_approve_and_what_holds_a_table_is_alerted():
    alerts = {code.value: consequences(code).alert for code in RefusalCode}
    assert {code for code, alert in alerts.items() if alert is Alert.CAN_APPROVE} == codes_that("approvable")
    assert {alerts[code] for code in codes_that("holds_table")} == {Alert.MUST_ACT}


def test_no_silent_refusal_is_alerted():
    assert codes_that("silent") & codes_that("alert") == set()


def test_a_code_is_the_same_text_wherever_it_goes():
    for code in RefusalCode:
        assert json.dumps({"code": code}) == f'{{"code": "{code.value}"}}'
        assert f"{code}" == str(code) == code.value
        assert str(Refused(code, "why")) == f"{code.value}: why"


def test_nothing_follows_from_a_code_that_is_not_known():
    assert consequences("of_a_newer_replica") == consequences(RefusalCode.GC_DISABLED)
    assert not consequences("ceiling_of_a_newer_replica").approvable


def test_advice_names_the_run_that_it_is_about():
    assert "lakesweep approve r1`" in remedy("ceiling_share", "r1")
    assert remedy("held", "r1") is None
