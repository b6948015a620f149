import os

import pytest


@pytest.fixture(autouse=True)
def _no_settings_in_the_environment(monkeypatch):
    for name in list(os.environ):
        if name.upper().startswith("LAKESWEEP_"):
            monkeypatch.delenv(name)


@pytest.fixture
def write(tmp_path):
    """Write a settings file and give its path."""

    def written(text: str):
        path = tmp_path / "lakesweep.toml"
        path.write_text(text)
        return path

    return written
