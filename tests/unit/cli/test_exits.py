import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cli import examples

from lakesweep.cli import exit_codes
from lakesweep.cli.exit_codes import ExitCode
from lakesweep.model.errors import (
    CatalogUnavailable,
    Indeterminate,
    Refused,
    SettingsError,
    StateError,
    Unavailable,
    UnknownTable,
)


@pytest.mark.parametrize(
    ("run", "code"),
    [
        (examples.done(), 0),
        (examples.planned(), 0),
        (examples.refused(), 3),
        (examples.failed(), 4),
        (examples.indeterminate(), 4),
        (examples.half_done(), 4),
        (examples.planned(outcome=None), 4),
    ],
)
def test_a_run_gives_the_documented_code(run, code):
    assert exit_codes.of_run(run) == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SettingsError("x"), 2),
        (UnknownTable("x"), 2),
        (Refused("code", "x"), 3),
        (Indeterminate("x"), 4),
        (CatalogUnavailable("x"), 4),
        (StateError("x"), 4),
        (Unavailable("s3://x", "refused"), 4),
        (RuntimeError("x"), 4),
    ],
)
def test_an_error_gives_the_documented_code(error, code):
    assert exit_codes.of_error(error) == code


@given(codes=st.lists(st.sampled_from([ExitCode.DONE, ExitCode.USAGE, ExitCode.REFUSED, ExitCode.FAILED])))
def test_the_gravest_wins(codes):
    order = [4, 3, 2, 0]
    assert exit_codes.highest(codes) == next((code for code in order if code in codes), 0)


def test_several_faults_are_reported_one_a_line():
    assert exit_codes.sentence(SettingsError(["a", "b"])) == "2 errors in the settings:\n  - a\n  - b"
    assert exit_codes.sentence(SettingsError("a")) == "a"


def test_an_unexpected_error_says_how_to_see_more():
    assert exit_codes.sentence(RuntimeError("boom")) == "unexpected RuntimeError: boom (--debug shows where)"
