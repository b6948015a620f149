"""Errors survive the way through Spark's stack traces, and what Spark itself says becomes one sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesweep.engines.spark.errors import carried, understood
from lakesweep.model.errors import (
    CommitConflict,
    Denied,
    EngineFailed,
    Indeterminate,
    LakesweepError,
    NotFound,
    Unavailable,
    Unreadable,
)
from lakesweep.storage.s3.errors import Throttled

TRACE = """An error occurred while calling o86.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 2.0 failed 4 times
Traceback (most recent call last):
  File "/x/worker.py", line 12, in main
lakesweep.engines.spark.errors.WorkerFault: {}

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:581)
"""


@given(kind=st.sampled_from([Unreadable, NotFound, Denied, Unavailable]), address=st.text(), why=st.text())
def test_an_addressed_error_comes_back_as_itself(kind, address, why):
    found = understood(TRACE.format(carried(kind(address, why))))
    assert type(found) is kind
    assert (found.address, found.why) == (address, why)


def test_a_throttled_request_comes_back_as_a_store_that_did_not_answer():
    found = understood(TRACE.format(carried(Throttled("s3://lake/t", "SlowDown"))))
    assert type(found) is Unavailable
    assert (found.address, found.why) == ("s3://lake/t", "SlowDown")


@given(kind=st.sampled_from([Indeterminate, EngineFailed]), text=st.text())
def test_a_sentence_comes_back_as_itself(kind, text):
    found = understood(TRACE.format(carried(kind(text))))
    assert type(found) is kind
    assert str(found) == text


def test_an_error_that_no_worker_should_raise_fails_the_engine():
    found = understood(TRACE.format(carried(CommitConflict("lost the race"))))
    assert type(found) is EngineFailed
    assert str(found) == "lost the race"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("ModuleNotFoundError: No module named 'lakesweep.engines'", "do not have the Python package lakesweep:"),
        ("ModuleNotFoundError: No module named 'pyarrow'", "do not have the Python package pyarrow:"),
        (
            "[PACKAGE_NOT_INSTALLED] PyArrow >= 15.0.0 must be installed; however, it was not found.",
            "another Python environment than this one: PyArrow >= 15.0.0 must be installed",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11",
            "another Python environment than this one: Python in worker has different version: 3.9",
        ),
        ("java.io.IOException: No space left on device", "Spark could not finish: "),
    ],
)
def test_what_spark_says_becomes_one_sentence(said, expected):
    found = understood(TRACE.format(said))
    assert isinstance(found, EngineFailed)
    assert expected in str(found)
    assert "\n" not in str(found)


def test_a_java_error_without_a_cause_is_told_without_its_stack():
    found = understood(
        'An error occurred while calling o6.x.\n: java.io.IOException: No "foo"\n\tat java.base/x.y(Z.java:1)'
    )
    assert str(found) == 'Spark could not finish: java.io.IOException: No "foo"'


@given(text=st.text())
def test_any_text_is_an_error(text):
    assert isinstance(understood(text), LakesweepError)
