"""Before anything goes a person at a terminal is asked once, and Ctrl-C leaves a closed record of what was done."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from tests.builders.small_lake import LocalLake, to_toml

from lakesweep.cli.main import main

MANY = 150


@pytest.fixture
def lake(tmp_path):
    return LocalLake(root=tmp_path)


@pytest.fixture
def config(lake, tmp_path):
    def written(**sections):
        file = tmp_path / "lakesweep.toml"
        file.write_text(to_toml(lake.settings(logging={"level": "error"}, **sections)))
        return str(file)

    return written


def at_a_terminal(arguments, answer):
    """Run the command with a terminal for all three streams: its exit code and all that was shown."""
    leader, follower = os.openpty()
    command = [sys.executable, "-m", "lakesweep", *arguments]
    running = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, close_fds=True)
    os.close(follower)
    shown = b""
    answered = False
    while True:
        try:
            data = os.read(leader, 65536)
        except OSError:  # the terminal's other side is closed
            break
        if not data:
            break
        shown += data
        if b"Expire and delete?" in shown and not answered:
            answered = True
            os.write(leader, answer)
    os.close(leader)
    return running.wait(), shown.decode()


def test_a_person_is_shown_the_totals_and_asked_once(lake, config):
    lake.add("acme", ["one", "two"])
    file = config()
    code, shown = at_a_terminal(["run", "*", "--execute", "--config", file], b"n\n")
    assert code == 0
    assert "2 tables: 0 snapshots to expire, 6 files (" in shown
    assert shown.count("Expire and delete?") == 1
    assert "nothing was changed" in shown
    assert len(lake.orphans_left("acme/d/one")) == 3
    code, shown = at_a_terminal(["run", "*", "--execute", "--config", file], b"y\n")
    assert code == 0
    assert shown.count("Expire and delete?") == 1
    assert not lake.orphans_left("acme/d/one") | lake.orphans_left("acme/d/two")
    code, shown = at_a_terminal(["run", "*", "--execute", "--config", file], b"")
    assert (code, "nothing to expire or delete" in shown, "delete?" in shown) == (0, True, False)


def test_whoever_says_yes_before_is_not_asked(lake, config):
    lake.add("acme", ["one"])
    code, shown = at_a_terminal(["run", "*", "--execute", "--yes", "--config", config()], b"")
    assert (code, "Expire and delete?" in shown) == (0, False)
    assert not lake.orphans_left("acme/d/one")


def test_a_script_is_never_asked(lake, config, capsys, monkeypatch):
    lake.add("acme", ["one"])
    monkeypatch.setattr(sys, "stdin", open(os.devnull))  # noqa: PTH123, SIM115 - a stream that is no terminal
    assert main(["run", "*", "--execute", "--config", config()]) == 0
    assert not lake.orphans_left("acme/d/one")


def test_ctrl_c_closes_the_run_with_what_was_done(lake, config, capsys):
    lake.add("acme", ["one"], orphans=MANY, batch_size=1, max_concurrent_deletions=1)
    file = config()

    def press():
        while len(lake.orphans_left("acme/d/one")) == MANY:
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGINT)

    pressing = threading.Thread(target=press)
    pressing.start()
    code = main(["run", "acme/d/one", "--execute", "--config", file])
    pressing.join()
    told = capsys.readouterr().err
    deleted = MANY - len(lake.orphans_left("acme/d/one"))
    assert code == 130
    assert 0 < deleted < MANY
    assert f"interrupted: {deleted} file{'s' if deleted > 1 else ''} deleted (" in told
    assert "The same command continues from here" in told
    main(["runs", "--json", "--config", file])
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["phase"], run["outcome"], run["deleted"]["count"]) == ("finished", "failed", deleted)
    assert "Ctrl-C" in run["reason"]
    assert main(["run", "acme/d/one", "--execute", "--config", file]) == 0
    assert not lake.orphans_left("acme/d/one")
    lake.check_live()


@pytest.mark.parametrize("command", ["run", "restore"])
def test_sigterm_closes_the_run_as_ctrl_c_does(lake, config, capsys, command):
    lake.add("acme", ["one"], orphans=MANY, batch_size=1, max_concurrent_deletions=1)
    file = config(orphan_cleanup={"enabled": True, "dry_run": False, "deletion": "trash"})
    again = arguments = ["run", "acme/d/one", "--execute", "--config", file]
    if command == "restore":
        assert main(arguments) == 0
        capsys.readouterr()
        main(["runs", "--json", "--config", file])
        (run,) = json.loads(capsys.readouterr().out)["runs"]
        again = arguments = ["restore", run["run_id"], "--config", file]
    running = subprocess.Popen([sys.executable, "-m", "lakesweep", *arguments], stderr=subprocess.PIPE, text=True)
    untouched = MANY if command == "run" else 0
    while len(lake.orphans_left("acme/d/one")) == untouched:
        assert running.poll() is None
        time.sleep(0.005)
    running.send_signal(signal.SIGTERM)
    _, told = running.communicate(timeout=60)
    assert running.returncode == 130, told
    assert "SIGTERM: stopping after the requests in progress" in told
    assert 0 < len(lake.orphans_left("acme/d/one")) < MANY
    main(["runs", "--json", "--config", file])
    run = json.loads(capsys.readouterr().out)["runs"][0]
    assert (run["phase"], run["outcome"]) == ("finished", "failed")
    assert run["reason"].startswith("interrupted by SIGTERM")
    assert main(again) == 0  # no lease is left
    assert len(lake.orphans_left("acme/d/one")) == MANY - untouched
    lake.check_live()


def test_ctrl_c_is_python_s_own_again_after_a_run(lake, config, capsys):
    lake.add("acme", ["one"])
    before = signal.getsignal(signal.SIGINT)
    assert main(["plan", "--config", config()]) == 0
    assert signal.getsignal(signal.SIGINT) is before
