"""A picture of `lakesweep plan` on a terminal: the real command over the real lake of the demo, drawn by rich."""

import io
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from lakesweep.cli.demo import lake

PLACE = Path("/tmp/lakesweep-docs")
"""Short, since it is in the picture. Must not be there yet."""
TARGET = "acme/shop/orders"
COLUMNS = 112


def draw() -> str:
    """The SVG. Its fonts are the reader's own: nothing is fetched from elsewhere."""
    PLACE.mkdir()
    try:
        settings = lake.build(PLACE / "lake").settings
        shown = _on_a_terminal(
            [sys.executable, "-m", "lakesweep", "plan", TARGET, "--files", "3"],
            LAKESWEEP_TENANTS=json.dumps(settings["tenants"]),
            LAKESWEEP_SERVICE__DATA_DIR=str(PLACE / "state"),
            LAKESWEEP_LOGGING__LEVEL="error",
        )
    finally:
        shutil.rmtree(PLACE)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print(Text(f"$ lakesweep plan {TARGET} --files 3", "bold"))
    console.print(Text.from_ansi(shown.strip()))
    svg = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="lakesweep plan", unique_id="plan"), flags=re.S)
    return "\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n"


def _on_a_terminal(command: list[str], **variables: str) -> str:
    """What a command prints when a person looks at it."""
    ours, its = pty.openpty()
    environment = os.environ | {"COLUMNS": str(COLUMNS), "LINES": "80", "TERM": "xterm-256color"} | variables
    process = subprocess.Popen(command, stdin=its, stdout=its, stderr=subprocess.PIPE, env=environment)
    os.close(its)
    parts = []
    try:
        while part := os.read(ours, 65536):
            parts.append(part)
    except OSError:  # how a terminal ends on Linux
        pass
    finally:
        os.close(ours)
    _, complaints = process.communicate()
    if process.returncode:
        raise RuntimeError(complaints.decode())
    return b"".join(parts).decode().replace("\r\n", "\n")
