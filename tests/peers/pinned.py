"""The Python of a virtualenv with somebody else's packages, held to a lock file; made once and kept beside the jars."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from tests.peers import jars


def python_with(pins: Path) -> Path:
    """Their pins and ours do not agree, so each has its own."""
    home = jars.cache_dir() / f"{pins.stem}-{hashlib.sha256(pins.read_bytes()).hexdigest()[:12]}"
    python = home / "bin" / "python"
    done = home / ".complete"
    with jars.locked(jars.cache_dir() / f".{pins.stem}.lock"):
        if not done.is_file():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
            install = [str(python), "-m", "pip", "install", "-q", "--require-hashes", "-r", str(pins)]
            subprocess.run(install, check=True)
            done.touch()
    return python
