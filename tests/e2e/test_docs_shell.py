"""The commands in the documents are run as they stand there, with the real programs.

Every ```shell block of a page goes to one bash, in order, in a scratch directory that looks like a checkout. The
only change is the ports: several tests run on one machine. A block that cannot run here (a container engine, a cluster,
a package manager) is written as ```console, and how many of those a page has is stated below.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.peers.ports import free_port
from tests.servers.daemon import Place, make_place
from tests.servers.prometheus import program

pytestmark = pytest.mark.xdist_group("docs")

ROOT = Path(__file__).parents[2]
SHELL = re.compile(r"^```shell\n(.*?)^```", re.S | re.M)
BLOCK = re.compile(r"^ *```(\w+)[^\n]*\n", re.M)
NOT_RUN = {
    "README.md": 2,
    "docs/api.md": 1,
    "docs/benchmarks.md": 1,
    "docs/cli.md": 3,
    "docs/engines.md": 3,
    "docs/orchestrators.md": 2,
    "docs/questions.md": 1,
    "docs/runbook.md": 1,
    "deploy/README.md": 3,
    "deploy/iam/README.md": 1,
}
"""Blocks of commands that no test of this file runs: the README's make targets, which have tests of their own,
installing the wheel, a request with a made-up host and token, the benchmarks, which take long, a variable for pods in a
cluster, lines for dbt and cron, which tests/unit/test_orchestrators_page.py runs, lakes and runs that are made up, jobs
of other clouds, what takes a container engine, a registry or a cluster, and one that fills in an IAM policy."""
ALONE = {"AWS_EC2_METADATA_DISABLED": "true", "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
"""Nothing is asked for outside of this machine: what the pages install is installed."""
SECONDS = 400


def pages() -> dict[str, str]:
    found = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "deploy").rglob("*.md"))]
    return {str(page.relative_to(ROOT)): page.read_text() for page in found}


def scratch(directory: Path) -> Path:
    """A checkout as far as the documents use it. Its environment is the one that runs the tests, so that
    `make setup` finds it made."""
    environment = directory / ".venv"
    environment.mkdir(parents=True)
    for name in ("Makefile", ".ci", "config", "deploy", "dist.toml"):
        (directory / name).symlink_to(ROOT / name)
    for name in ("requirements.lock", "build.lock", "pyproject.toml"):
        shutil.copyfile(ROOT / name, directory / name)
    for name in ("bin", "lib"):
        (environment / name).symlink_to(Path(sys.prefix) / name)
    (environment / ".installed").touch()
    return directory


def run_page(page: str, directory: Path, ports: dict[str, int], *programs: str, **variables: str) -> str:
    """Run a page's blocks in one bash, and give back what it printed. Whatever they started is ended."""
    script = ["set -euo pipefail"]
    for number, block in enumerate(SHELL.findall(pages()[page]), 1):
        script += [f'echo "--- block {number}, after $SECONDS s"', block]
    text = "\n".join(script)
    for written, used in ports.items():
        text = re.sub(rf"(?<=[:=]){written}\b", str(used), text)
    file, log = directory / "page.sh", directory / "page.log"
    file.write_text(text)
    folders = [*(str(Path(one).parent) for one in programs), str(Path(sys.prefix) / "bin"), os.environ["PATH"]]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LAKESWEEP_", "AWS_"))}
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["bash", str(file)],
            cwd=directory,
            env=environment | {"PATH": os.pathsep.join(folders)} | ALONE | variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=SECONDS)
        finally:
            with suppress(ProcessLookupError):  # unless something of it still runs
                os.killpg(process.pid, signal.SIGKILL)
    printed = log.read_text(errors="replace")
    assert code == 0, printed[-6000:]
    return printed


def made(directory: Path, extra: str = "") -> Place:
    """The lake that the pages' examples are about."""
    directory.mkdir()
    return make_place(directory, extra=extra)


def test_the_quickstart_cleans_a_lake_and_prometheus_sees_it(tmp_path):
    place = scratch(tmp_path / "checkout")
    ports = {str(port): free_port() for port in (8333, 9333, 8380, 8888, 8484, 9464, 9090)}
    printed = run_page("docs/quickstart.md", place, ports, program("prometheus"), HOME=str(tmp_path))
    planned = json.loads((place / "quickstart" / "plan.json").read_text())["tables"][0]["orphans"]["count"]
    deleted = re.findall(r'"outcome": "done".*?"deleted": \{"count": (\d+)', printed)
    assert '"lakesweep_reclaimable_bytes"' in printed
    assert planned > 20
    assert [int(count) for count in deleted] == [planned]
    assert printed.count("1000 rows") == 2
    assert re.findall(r"(?m)^ *orphan +(\d+)", printed) == [str(planned), "0"]
    assert re.search(r"acme/shop/orders: \d+ segments of \d+ runs?: ok", printed)


def test_the_commands_of_the_api_page_run_as_they_stand(tmp_path):
    lake = made(tmp_path / "lake", extra="[orphan_cleanup.ceilings]\nfiles = 10")
    with lake.service() as api:
        api.knows("acme/prod/orders")
        api.run("acme/prod/orders", execute=False)  # its first turn is over then
        ports = {"8484": lake.admin_port}
        printed = run_page("docs/api.md", scratch(tmp_path / "checkout"), ports, HOME=str(tmp_path))
    assert '"code":"ceiling_files"' in printed
    assert '"approved_by":"local"' in printed
    assert '"code":"not_running"' in printed
    assert '{"paused":[]}' in printed


@pytest.mark.parametrize("page", ["docs/runbook.md", "docs/rollout.md", "README.md"])
def test_the_commands_of_a_page_run_as_they_stand(page, tmp_path):
    lake = made(tmp_path / "lake")
    place = scratch(tmp_path / "checkout")
    (place / "lakesweep.toml").symlink_to(lake.config)
    printed = run_page(page, place, {}, LAKESWEEP_CONFIG=str(lake.config), HOME=str(tmp_path))
    assert "acme/prod/orders" in printed


def test_every_page_with_commands_is_run():
    with_commands = {page for page, text in pages().items() if SHELL.search(text)}
    run = {"docs/quickstart.md", "docs/api.md", "docs/runbook.md", "docs/rollout.md", "README.md"}
    assert with_commands == run


def test_what_is_not_run_is_counted():
    counts = {page: BLOCK.findall(text).count("console") for page, text in pages().items()}
    assert {page: count for page, count in counts.items() if count} == NOT_RUN


def test_commands_stand_in_no_other_kind_of_block():
    """A block without a language, or of another shell's name, would be neither run nor counted."""
    kinds = {kind for text in pages().values() for kind in BLOCK.findall(text)}
    # Python is run, or at least compiled, by tests/unit/test_api.py and tests/unit/test_integrations.py.
    assert kinds <= {"shell", "console", "toml", "json", "text", "python"}
