"""State stores in processes of their own, for what one process cannot show: real races, limits, file modes."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

CHILD = """
import asyncio, json, os, sys
from datetime import UTC, datetime, timedelta
from lakesweep.model.errors import StateError
from lakesweep.model.run import CleanupRun
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.state.registry import open_state

class Clock:
    def now(self):
        return datetime.now(UTC)

async def outcome(url):
    try:
        return await work(await open_state(url, Clock()))
    except StateError as exc:
        return f"StateError: {exc}"
"""


def child(body, url, **options):
    """A process of its own that runs `work(store)` and prints what came of it; it waits for a line first."""
    script = CHILD + textwrap.dedent(body) + "\nprint('ready', flush=True)\nsys.stdin.readline()\n"
    script += "print(json.dumps(asyncio.run(outcome(sys.argv[1]))))\n"
    return subprocess.Popen(
        [sys.executable, "-c", script, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options
    )


def outcomes(children):
    """Let all go at the same moment, and collect what they print."""
    for one in children:
        assert one.stdout.readline() == "ready\n"
    for one in children:
        one.stdin.write("go\n")
        one.stdin.flush()
    return [json.loads(one.communicate(timeout=120)[0]) for one in children]
