"""Preconditions of a Spark session, checked first because Spark's own errors come late and are long.

Each failed check raises EngineFailed with one sentence. Nothing is started here.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

from lakesweep.model.errors import EngineFailed

OLDEST_JAVA = 17
_CONNECT_PORT = 15002
_ANSWER_SECONDS = 5.0
_JAVA_SECONDS = 60.0
_REMEDY = (
    "Install one (`apt install openjdk-17-jre-headless`, `brew install openjdk@17`, https://adoptium.net), or let "
    'tables be planned without Spark: engine.kind = "inprocess"'
)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)([^"]*)"')


def find_java() -> str | None:
    """The program that Spark would start: JAVA_HOME's, or the first on the path."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")


def check_java() -> None:
    """Is there a Java that Spark can run on?"""
    program = find_java()
    if program is None:
        home = os.environ.get("JAVA_HOME")
        where = f"none in JAVA_HOME={home}" if home else "none found, set JAVA_HOME or put java on the PATH"
        raise EngineFailed(f"Spark needs Java {OLDEST_JAVA} or newer: {where}. {_REMEDY}")
    try:
        answer = subprocess.run(  # noqa: S603  # the operator's own Java, found where Spark looks for it
            [program, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise EngineFailed(f"Spark needs Java {OLDEST_JAVA} or newer: {program} does not run: {exc}") from exc
    found = _VERSION.search(answer.stderr + answer.stdout)
    if found is None:
        raise EngineFailed(f"Spark needs Java {OLDEST_JAVA} or newer: {program} does not report its version")
    if int(found.group(1)) < OLDEST_JAVA:
        raise EngineFailed(
            f"Spark needs Java {OLDEST_JAVA} or newer: {program} is {found.group(1)}{found.group(2)}. {_REMEDY}"
        )


def check_reachable(address: str) -> None:
    """Does something listen at this master or Connect server? Addresses without a host are not checked."""
    places = _places(address)
    trouble: OSError | None = None
    for place in places:
        try:
            with socket.create_connection(place, timeout=_ANSWER_SECONDS):
                return
        except OSError as exc:
            trouble = exc
    if trouble is not None:
        kind = "Spark Connect server" if address.startswith("sc://") else "Spark master"
        raise EngineFailed(f"the {kind} {address.partition(';')[0]} cannot be reached: {trouble}") from trouble


def _places(address: str) -> list[tuple[str, int]]:
    scheme, found, rest = address.partition("://")
    if not found or scheme not in ("spark", "sc", "k8s"):
        return []
    default = {"sc": _CONNECT_PORT, "k8s": 443, "spark": 7077}[scheme]
    hosts = rest.rpartition("://")[2].partition("/")[0].split(",")  # k8s:// contains a whole URL
    return [_place(host, default) for host in hosts if host]


def _place(text: str, default: int) -> tuple[str, int]:
    host, _, port = text.rpartition(":") if re.search(r":\d+$", text) else (text, "", "")
    return host.strip("[]"), int(port) if port else default
