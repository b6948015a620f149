"""What several tests of commands need. Each gives its own `lake`."""

from __future__ import annotations

import pytest
from tests.builders.small_lake import to_toml

from lakesweep.cli.main import main


@pytest.fixture
def call(lake, tmp_path, capsys):
    """Run a command on the lake's settings: its exit code, standard output and standard error."""
    file = tmp_path / "lakesweep.toml"

    def run(*arguments):
        file.write_text(to_toml(lake.settings(logging={"level": "error"})))
        code = main([*map(str, arguments), "--config", str(file)])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run
