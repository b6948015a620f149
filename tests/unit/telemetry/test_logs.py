"""The log is one, on standard error, with its context bound and its secrets masked."""

import asyncio
import json
import logging
import warnings

import pytest
import structlog

from lakesweep.daemon import run_results
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.settings.observability import LoggingSettings
from lakesweep.telemetry import logs

REF = TableRef(tenant=TenantId("acme"), dataset="prod", name="orders", format=FormatName.ICEBERG)


@pytest.fixture(autouse=True)
def _restore():
    root, ours = logging.getLogger(), logging.getLogger("lakesweep")
    handlers, level, our_level = root.handlers, root.level, ours.level
    logging.captureWarnings(capture=False)  # an earlier test's capture would hold, and catch nothing any more
    yield
    root.handlers = handlers
    root.setLevel(level)
    ours.setLevel(our_level)
    logging.getLogger(logs.RUN_RESULTS).setLevel(logging.NOTSET)
    logging.captureWarnings(capture=False)


@pytest.fixture
def lines(capsys):
    """What was logged since, as JSON objects. Nothing may be on standard output."""

    def read() -> list[dict]:
        written = capsys.readouterr()
        assert written.out == ""
        return [json.loads(line) for line in written.err.splitlines()]

    return read


def test_without_a_terminal_each_line_is_a_json_object(lines):
    logs.configure(LoggingSettings())
    structlog.get_logger("lakesweep.x").info("batch_deleted", deleted=3, name="ü")
    (line,) = lines()
    assert line["event"] == "batch_deleted"
    assert (line["level"], line["logger"], line["deleted"], line["name"]) == ("info", "lakesweep.x", 3, "ü")
    assert line["timestamp"].endswith("Z")


def test_the_context_is_on_every_line_inside_and_on_none_outside(lines):
    logs.configure(LoggingSettings())
    log = structlog.get_logger("lakesweep")
    with logs.about(REF, "run-1"):
        log.info("inside")
        logging.getLogger("lakesweep.other").info("standard %s", "logging")
    log.info("outside")
    inside, standard, outside = lines()
    bound = {"tenant": "acme", "dataset": "prod", "table": "orders", "run": "run-1"}
    assert bound.items() <= inside.items()
    assert bound.items() <= standard.items()
    assert standard["event"] == "standard logging"
    assert not bound.keys() & outside.keys()


async def test_two_tables_at_one_time_do_not_mix(lines):
    logs.configure(LoggingSettings())

    async def work(run: str) -> None:
        with logs.about(REF, run):
            await asyncio.sleep(0)
            structlog.get_logger("lakesweep").info("step", mine=run)

    await asyncio.gather(work("a"), work("b"))
    assert [(line["run"], line["mine"]) for line in lines()] == [("a", "a"), ("b", "b")]


def test_libraries_log_warnings_only(lines):
    logs.configure(LoggingSettings(level="debug"))
    logging.getLogger("botocore").info("chatter")
    logging.getLogger("botocore").warning("loud")
    warnings.warn("careful", stacklevel=1)
    assert [line["logger"] for line in lines()] == ["botocore", "py.warnings"]


def test_what_py4j_says_of_a_jvm_that_ended_is_left_out(lines):
    logs.configure(LoggingSettings())
    logging.error("Exception while sending command.")  # noqa: LOG015  # as py4j does
    logging.getLogger("other").error("Exception while sending command.")
    assert [line["logger"] for line in lines()] == ["other"]


@pytest.mark.parametrize(("at_least", "told"), [(logging.DEBUG, ["info", "warning"]), (logging.WARNING, ["warning"])])
def test_a_command_may_ask_for_less(lines, at_least, told):
    logs.configure(LoggingSettings(), at_least=at_least)
    log = structlog.get_logger("lakesweep")
    log.debug("a")
    log.info("b")
    log.warning("c")
    assert [line["level"] for line in lines()] == told


@pytest.mark.parametrize(("at_least", "told"), [(logging.DEBUG, ["warning", "error"]), (logging.WARNING, ["error"])])
def test_a_command_that_shows_its_runs_does_not_log_how_they_ended(lines, at_least, told):
    logs.configure(LoggingSettings(), at_least=at_least)
    log = structlog.get_logger(run_results.__name__)
    log.warning("run_finished")
    log.error("unexpected_error")
    assert [line["level"] for line in lines()] == told


@pytest.mark.parametrize("form", ["json", "console"])
def test_no_secret_reaches_the_log(capsys, form):
    logs.configure(LoggingSettings(format=form))
    log = structlog.get_logger("lakesweep")
    log.info("opened", token="hush", url="postgresql://u:hush@h/d", catalog={"credential": "hush"})
    logging.getLogger("library").warning("connecting with password=hush")
    try:
        int("s3://key:hush@host")
    except ValueError:
        log.exception("failed")
    written = capsys.readouterr().err
    assert "hush" not in written
    assert written.count("***") == 6
    assert "ValueError" in written


def test_the_console_is_plain_without_a_terminal(capsys):
    logs.configure(LoggingSettings(format="console"))
    structlog.get_logger("lakesweep").info("table_loaded", snapshots=3)
    written = capsys.readouterr().err
    assert "table_loaded" in written
    assert "snapshots=3" in written
    assert "\x1b" not in written


def test_what_a_person_ran_is_readable_without_a_terminal_too(capsys):
    logs.configure(LoggingSettings(), for_person=True)
    structlog.get_logger("lakesweep").info("run_finished", outcome="done")
    line = capsys.readouterr().err
    assert "run_finished" in line
    assert not line.startswith("{")
    logs.configure(LoggingSettings(format="json"), for_person=True)
    structlog.get_logger("lakesweep").info("run_finished", outcome="done")
    assert json.loads(capsys.readouterr().err)["outcome"] == "done"


def test_configuring_again_does_not_double_the_lines(lines):
    logs.configure(LoggingSettings())
    logs.configure(LoggingSettings())
    structlog.get_logger("lakesweep").info("once")
    assert len(lines()) == 1
