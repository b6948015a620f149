"""`lakesweep restore` and `lakesweep trash`: their documents and exit codes."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest
from tests.builders.small_lake import LocalLake, small_table, to_toml, write_local

from lakesweep.cli.main import main
from lakesweep.daemon import holds
from lakesweep.daemon.app import App
from lakesweep.daemon.lease import HeldLease
from lakesweep.settings.schema import Settings

_check = HeldLease.check


async def interrupted(held: HeldLease) -> None:
    """Ctrl-C before a batch."""
    signal.raise_signal(signal.SIGINT)
    await asyncio.sleep(0.01)
    await _check(held)


class Cleaned:
    """A lake with one run that took three files, and its settings file."""

    def __init__(self, root: Path, deletion: str, orphans: int = 3) -> None:
        self.lake = LocalLake(root=root)
        self.lake.add("acme", ["t", "u"], orphans=orphans)
        settings = self.lake.settings(orphan_cleanup={"enabled": True, "dry_run": False, "deletion": deletion})
        self.config = root / "lakesweep.toml"
        self.config.write_text(to_toml(settings))

        async def clean() -> str:
            async with App.open(Settings.model_validate(settings)) as app:
                (work,) = await app.resolve("acme/d/t")
                return (await app.run(work, execute=True)).id

        self.run_id = asyncio.run(clean())

    def command(self, *words: str) -> int:
        return main([*words, "--config", str(self.config)])


def test_restore_prints_the_promised_document_and_ends_with_zero(tmp_path, capsys):
    cleaned = Cleaned(tmp_path, "trash")
    capsys.readouterr()
    assert cleaned.command("trash", "--json") == 0
    (place,) = json.loads(capsys.readouterr().out)["trash"]
    assert [(one["run_id"], one["table"], one["count"], one["bytes"]) for one in place["runs"]] == [
        (cleaned.run_id, "acme/d/t", 3, 75)
    ]
    promised = {
        "run_id": cleaned.run_id,
        "restored": {"count": 3, "bytes": 75},
        "already_there": 0,
        "not_restorable": {"count": 0, "files": []},
        "paused": False,
    }
    assert cleaned.command("restore", cleaned.run_id, "--dry-run", "--json") == 0
    assert json.loads(capsys.readouterr().out) == promised
    assert cleaned.command("restore", cleaned.run_id[:8], "--json") == 0
    assert json.loads(capsys.readouterr().out) == {**promised, "paused": True}
    assert len(cleaned.lake.orphans_left("acme/d/t")) == 3
    assert cleaned.command("restore", cleaned.run_id) == 0
    assert "already there: 3 files" in capsys.readouterr().out
    assert cleaned.command("trash") == 0
    assert "the trash is empty" in capsys.readouterr().out


def test_a_restored_table_stays_paused_when_an_earlier_pause_ends(tmp_path, capsys):
    cleaned = Cleaned(tmp_path, "trash")
    cleaned.command("pause", "acme", "--for", "1h")
    assert cleaned.command("restore", cleaned.run_id) == 0
    capsys.readouterr()
    cleaned.command("holds", "--json")
    there = json.loads(capsys.readouterr().out)["holds"]
    assert [(one["scope"], one["ends_at"] is None) for one in there] == [("acme", False), ("acme/d/t", True)]


def test_a_restore_pauses_its_table_however_many_holds_there_are(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(holds, "MAX_HOLDS", 1)
    cleaned = Cleaned(tmp_path, "trash")
    cleaned.command("pause", "acme", "--for", "1h")
    assert cleaned.command("restore", cleaned.run_id) == 0
    capsys.readouterr()
    cleaned.command("holds", "--json")
    assert [one["scope"] for one in json.loads(capsys.readouterr().out)["holds"]] == ["acme", "acme/d/t"]


def test_restore_ends_with_three_if_nothing_can_be_restored(tmp_path, capsys):
    cleaned = Cleaned(tmp_path, "delete")
    capsys.readouterr()
    assert cleaned.command("restore", cleaned.run_id, "--json") == 3
    told = json.loads(capsys.readouterr().out)
    assert (told["restored"]["count"], told["not_restorable"]["count"], told["paused"]) == (0, 3, False)
    assert "deleted for good" in told["not_restorable"]["files"][0]["why"]
    assert cleaned.command("restore", "f" * 32) == 2


def test_files_that_cannot_be_restored_are_counted_beyond_the_first_ten(tmp_path, capsys):
    cleaned = Cleaned(tmp_path, "trash", orphans=13)
    capsys.readouterr()
    moved = [path for path in (tmp_path / "lake").rglob("*-failed.parquet") if cleaned.run_id in str(path)]
    assert len(moved) == 13
    for path in moved[1:]:
        path.unlink()
    assert cleaned.command("restore", cleaned.run_id) == 0
    told = capsys.readouterr()
    assert told.out.count("-failed.parquet: ") == 10
    assert "  … and 2 more files\n" in told.out


def test_what_is_gone_from_a_disk_is_said_to_be_gone_and_no_more(tmp_path, capsys):
    cleaned = Cleaned(tmp_path, "delete")
    capsys.readouterr()
    assert cleaned.command("restore", cleaned.run_id) == 3
    told = capsys.readouterr()
    assert "deleted for good" in told.out + told.err
    assert "bucket" not in told.out + told.err


def test_a_restore_of_nothing_says_why_and_pauses_nothing(tmp_path, capsys):
    cleaned = Cleaned(tmp_path, "trash")
    assert cleaned.command("run", "acme/d/u") == 0
    capsys.readouterr()
    cleaned.command("runs", "--json")
    dry = json.loads(capsys.readouterr().out)["runs"][0]["run_id"]
    for words in ((dry,), (dry, "--json"), (dry, "--dry-run")):
        assert cleaned.command("restore", *words) == 3
        assert f"nothing of run {dry} can be restored: it was a dry run" in capsys.readouterr().err
    assert cleaned.command("restore", cleaned.run_id, "--path", "nothing") == 3
    assert "no path matches" in capsys.readouterr().err
    cleaned.command("holds", "--json")
    assert json.loads(capsys.readouterr().out)["holds"] == []


def test_a_restore_of_a_restore_is_refused_and_still_prints_a_document(tmp_path, capsys):
    cleaned = Cleaned(tmp_path, "trash")
    capsys.readouterr()
    cleaned.command("restore", cleaned.run_id)
    told = capsys.readouterr().out
    assert "the table is held: `lakesweep resume acme/d/t` lets it be cleaned again" in told
    own_run = told.partition("this is run ")[2].partition(";")[0]
    assert cleaned.command("restore", own_run, "--json") == 3
    out, error = capsys.readouterr()
    assert f"it restored the files of run {cleaned.run_id}" in error
    nothing = {"restored": {"count": 0, "bytes": 0}, "already_there": 0, "not_restorable": {"count": 0, "files": []}}
    assert json.loads(out) == {"run_id": own_run, **nothing, "paused": True}


def test_the_command_that_resumes_names_the_hold_that_is_there(tmp_path, capsys):
    cleaned = Cleaned(tmp_path, "trash")
    cleaned.command("pause", "acme")
    cleaned.command("restore", cleaned.run_id)
    assert "`lakesweep resume acme` lets" in capsys.readouterr().out


def test_the_trash_of_a_bare_location_is_named(tmp_path, capsys, monkeypatch):
    """It is no tenant's, so nothing lists it; `the trash is empty` alone would be wrong."""
    for name, value in {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "LAKESWEEP_STORAGE__LOCAL__AGE_BY": "modification",
        "LAKESWEEP_ORPHAN_CLEANUP__DELETION": "trash",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("LAKESWEEP_CONFIG", raising=False)
    write_local(tmp_path / "lake" / "t", small_table("t"))
    place = f"file://{tmp_path}/lake"
    assert main(["run", str(tmp_path / "lake" / "t"), "--root", str(tmp_path / "lake"), "--execute"]) == 0
    capsys.readouterr()
    assert main(["runs", "--json"]) == 0
    run_id = json.loads(capsys.readouterr().out)["runs"][0]["run_id"]
    told = f"run {run_id} moved 3 files of {place}/t to {place}/.lakesweep-trash, which no service empties"
    assert main(["trash"]) == 0
    assert told in capsys.readouterr().err
    assert main(["restore", run_id]) == 0
    capsys.readouterr()
    assert main(["trash"]) == 0
    assert told not in capsys.readouterr().err


def test_a_misspelled_tenant_of_the_trash_gets_the_one_that_was_meant(tmp_path, capsys):
    cleaned = Cleaned(tmp_path, "trash")
    assert cleaned.command("trash", "acne") == 2
    assert "no tenant is called 'acne': did you mean 'acme'?" in capsys.readouterr().err


def test_an_interrupted_restore_is_closed_and_continued(tmp_path, capsys, monkeypatch):
    cleaned = Cleaned(tmp_path, "trash")
    capsys.readouterr()
    with monkeypatch.context() as patched:
        patched.setattr(HeldLease, "check", interrupted)
        patched.setattr("lakesweep.cleanup.restore_finder.steps", lambda rows: [[row] for row in rows])
        assert cleaned.command("restore", cleaned.run_id, "--json") == 130
    out = capsys.readouterr()
    assert json.loads(out.out)["restored"]["count"] == 1
    assert "the same command continues" in out.err
    assert cleaned.command("restore", cleaned.run_id, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["restored"]["count"], told["already_there"]) == (2, 1)


def test_ctrl_c_shows_in_the_exit_code_although_the_last_batch_is_restored(tmp_path, monkeypatch):
    cleaned = Cleaned(tmp_path, "trash")
    monkeypatch.setattr(HeldLease, "check", interrupted)
    assert cleaned.command("restore", cleaned.run_id) == 130
    assert len(cleaned.lake.orphans_left("acme/d/t")) == 3


def test_restore_ends_with_four_if_the_store_refuses(tmp_path, capsys, monkeypatch):
    cleaned = Cleaned(tmp_path, "trash")
    capsys.readouterr()
    monkeypatch.setattr("lakesweep.storage.local.mover._rename_noreplace", lambda *_: 13)
    assert cleaned.command("restore", cleaned.run_id, "--json") == 4
    out = capsys.readouterr()
    assert json.loads(out.out)["not_restorable"]["count"] == 3
    assert "3 files could not be restored" in out.err


@pytest.mark.parametrize("words", [("restore", "--help"), ("trash", "--help")])
def test_help_lists_the_exit_codes(words, capsys):
    assert main(list(words)) == 0
    assert "Exit codes: 0" in " ".join(capsys.readouterr().out.split())
