"""The command line from outside: help, version, wrong words and wrong settings."""

import os
import subprocess
import sys

import pytest

from lakesweep import __version__
from lakesweep.cli.main import main

COMMANDS = ["plan", "run", "tables", "settings", "runs", "explain"]
HEAVY = ["pydantic", "pyarrow", "duckdb", "sqlalchemy", "pyiceberg", "pyspark", "aiobotocore", "structlog"]


@pytest.fixture(autouse=True)
def _clean(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith("LAKESWEEP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_the_version_is_shown(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"lakesweep {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command, capsys):
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Exit codes: 0 " in text
    assert "--config FILE" in text
    assert "--json" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_the_overview_names_every_command_in_full(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {command} " in text for command in COMMANDS)
    assert "..." not in text.split("Commands:")[1]


def test_help_needs_nothing_heavy():
    script = "import sys, lakesweep.cli.main; print(*sorted(set(sys.argv[1:]) & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", script, *HEAVY], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plam"], "Did you mean 'plan'?"),
        (["run"], "Missing argument 'TARGET'"),
        (["plan", "--files", "many"], "--files"),
        (["plan", "--format", "hudi"], "--format"),
        (["explain"], "Missing argument 'PATH'"),
        (["plan", "--nonsense"], "--nonsense"),
        (["completion", "powershell"], "Invalid value for 'SHELL': 'powershell' is not one of 'bash', 'zsh', 'fish'"),
        (["token", "new", "--tenant", "a", "--role", "root"], "Invalid value for '--role': 'root' is not one of"),
        (["runs", "--limit", "0"], "Invalid value for '--limit': must be greater than or equal to 1"),
        (["plan", "--retain-last", "0"], "--retain-last: must be greater than or equal to 1"),
        (["plan", "--older-than", "9999999w"], "--older-than: must be less than or equal to"),
    ],
)
def test_wrong_arguments_exit_2_with_a_sentence(arguments, words, capsys):
    assert main(arguments) == 2
    written = capsys.readouterr()
    assert words in written.err
    assert written.out == ""


@pytest.mark.parametrize("command", [["plan"], ["run", "a/b/c"], ["tables"], ["settings"], ["runs"], ["explain", "/x"]])
def test_wrong_settings_exit_2_and_report_all_faults(command, capsys, tmp_path):
    config = tmp_path / "bad.toml"
    config.write_text("[orphan_cleanup]\ndryrun = true\nbatch_size = 0\n")
    assert main([*command, "--config", str(config)]) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.splitlines() == [
        "lakesweep: 2 errors in the settings:",
        f"  - {config}: orphan_cleanup.batch_size = 0: must be greater than or equal to 1",
        f"  - {config}: orphan_cleanup.dryrun: unknown key, did you mean 'dry_run'?",
    ]


def test_a_missing_file_is_one_sentence(capsys, tmp_path):
    assert main(["plan", "--config", str(tmp_path / "none.toml")]) == 2
    assert capsys.readouterr().err == f"lakesweep: cannot read {tmp_path / 'none.toml'}: No such file or directory\n"


def test_the_variable_names_the_file_too(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("LAKESWEEP_CONFIG", str(tmp_path / "none.toml"))
    assert main(["tables"]) == 2
    assert "none.toml" in capsys.readouterr().err


def test_a_traceback_is_shown_only_when_asked_for(capsys, tmp_path):
    missing = str(tmp_path / "none.toml")
    main(["plan", "--config", missing])
    assert "Traceback" not in capsys.readouterr().err
    assert main(["plan", "--config", missing, "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_the_module_is_the_command():
    found = subprocess.run(
        [sys.executable, "-m", "lakesweep", "--version"], capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stdout) == (0, f"lakesweep {__version__}\n")


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_reader_that_went_away_is_reported_by_the_exit_code_alone(words):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "lakesweep", "settings", *words]
    with os.fdopen(write, "wb") as closed:
        done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (141, "")
