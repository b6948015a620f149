"""What `lakesweep audit` prints for people."""

import json

import pytest
from tests.builders.audits import ABOUT, NOON, a_run, batch, candidate, results_of, rows_of
from tests.builders.small_lake import LocalLake, to_toml

from lakesweep.audit import records
from lakesweep.audit.inspect import Findings
from lakesweep.cli import screen
from lakesweep.cli.audit import _sentence, _show_findings
from lakesweep.cli.main import main
from lakesweep.model.run import Outcome
from lakesweep.model.snapshot import ExpiryPlan, Snapshot

ROW = candidate("s3://b/t/1.parquet", 2048)
SNAPSHOT = Snapshot(id="77", committed_at=NOON)


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (records.begin_record(a_run(), ABOUT), "begin by command (ada), head h1, 4 files, 28 B"),
        (records.begin_record(a_run(plan=None), ABOUT), "begin by command (ada), head h1, no plan"),
        (records.expiry_record("expired", ExpiryPlan(head="h1", expire=(SNAPSHOT,))), "expired 1 snapshot 77"),
        (
            json.loads(records.deleting_lines(batch(0, 1), rows_of(ROW), rows_of())),
            "delete s3://b/t/1.parquet (data, unreferenced, 2.0 KiB)",
        ),
        (
            json.loads(records.deleted_lines(batch(0, 1), results_of(("s3://b/x", "failed", "no")))),
            "failed s3://b/x: no",
        ),
        (
            records.end_record(a_run(outcome=Outcome.REFUSED, reason="too much")),
            "end: refused, 0 deleted, 0 B freed (too much)",
        ),
        (
            {"record": "end", "outcome": "done", "deleted": {"count": 2, "bytes": 3072}, "freed_bytes": 1024},
            "end: done, 2 deleted, 1.0 KiB freed, 2.0 KiB kept in trash or versions",
        ),
        (
            {"record": "end", "outcome": "done", "deleted": {"count": 2, "bytes": 3072}},
            "end: done, 2 deleted, 3.0 KiB freed",
        ),
        (
            {"record": "event", "event": "paused", "by": "ada", "scope": "acme", "reason": None, "by_admin": True},
            "paused by ada, scope acme, by_admin True",
        ),
        ({"record": "something new", "more": 1}, '{"record": "something new", "more": 1}'),
    ],
)
def test_a_record_is_shown_on_one_line(record, line):
    assert _sentence(record) == line


def test_findings_name_every_fault_and_remark(capsys):
    console = screen.output()
    _show_findings(console, Findings(table="a/b/c", segments=3, runs=1, faults=["segment 2 is missing"], remarks=["x"]))
    _show_findings(console, Findings(table="a/b/d", segments=1, runs=1))
    assert capsys.readouterr().out.splitlines() == [
        "a/b/c: 3 segments of 1 run: BROKEN",
        "  - segment 2 is missing",
        "  - x",
        "a/b/d: 1 segment of 1 run: ok",
    ]


def test_an_event_of_the_service_is_no_run_that_was_interrupted(tmp_path, capsys):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["t"])
    config = tmp_path / "lakesweep.toml"
    config.write_text(to_toml(lake.settings()))
    for words in (["pause", "acme"], ["resume", "acme"], ["audit", "verify"]):
        assert main([*words, "--config", str(config)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "service events: 2 segments of 2 events: ok"
