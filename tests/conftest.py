"""Servers that several suites share. Each starts once per test process, when a test first asks for it."""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path

import pytest
import structlog
from hypothesis import settings
from tests.builders.stores import AGED_BY_MTIME
from tests.servers import seaweedfs as server

# A busy machine is slow, which says nothing about the law that is being checked. `make test` tries the same examples
# each time, so that a change is judged by the change; `make soak` tries others.
settings.register_profile("lakesweep", deadline=None, derandomize=not os.environ.get("SOAK"))
settings.load_profile("lakesweep")

# For every command and service that a test starts.
os.environ.update(AGED_BY_MTIME)

# Some containers switch bytecode off. Then each of the many commands that tests start compiles the program again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell that starts the tests in the background lets them ignore Ctrl-C, and with them whatever they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# structlog's own default formats a traceback with every local variable, which takes seconds for a web framework's.
structlog.get_config()["processors"][-1].exception_formatter = structlog.dev.plain_traceback

SERVERS = {"seaweedfs_server", "postgres_server", "postgres"}
"""Fixtures that start a server of somebody else's."""
SLOW = {
    "flow/test_confined.py",
    "flow/test_daemon_cycles.py",
    "flow/test_emergency_stop.py",
    "flow/test_frozen_sweep.py",
    "flow/test_ghost_claims.py",
    "flow/test_ghost_places.py",
    "flow/test_ghost_plans.py",
    "flow/test_ghost_plans_iceberg.py",
    "flow/test_ghosts.py",
    "flow/test_hostile_disk.py",
    "flow/test_iceberg_lineage.py",
    "flow/test_iceberg_more_ways_to_lose_data.py",
    "flow/test_iceberg_other_histories.py",
    "flow/test_iceberg_second_catalog.py",
    "flow/test_last_check.py",
    "flow/test_report_leftovers.py",
    "flow/test_restore_entries.py",
    "flow/test_shared_files.py",
    "flow/test_shared_files_of_other_tenants.py",
    "flow/test_shared_files_unreadable.py",
    "flow/test_trash.py",
    "flow/test_unloadable_tables.py",
    "unit/cli/test_confirmation_prompt.py",
    "unit/cli/test_demo.py",
    "unit/cli/test_documents.py",
    "unit/cli/test_holds.py",
    "unit/cli/test_init_and_doctor.py",
    "unit/cli/test_restore.py",
    "unit/cli/test_startup.py",
    "unit/cli/test_summary.py",
    "unit/daemon/test_scheduler.py",
    "unit/daemon/test_table_locations.py",
    "unit/delta/test_lite.py",
    "unit/engines/test_manifest_fingerprints.py",
    "unit/iceberg/test_expire_rest.py",
    "unit/paimon/test_closing.py",
    "unit/paimon/test_hidden_rollback.py",
    "unit/paimon/test_manifests.py",
    "unit/storage/test_fourth_store.py",
    "unit/storage/test_local_delete.py",
    "unit/storage/test_local_walk.py",
    "unit/storage/test_s3_delete.py",
    "unit/storage/test_s3_faults.py",
    "unit/storage/test_s3_listing.py",
    "unit/storage/test_s3_parts.py",
    "unit/telemetry/test_tracing.py",
    "unit/test_airflow_and_dagster.py",
    "unit/test_api.py",
    "unit/test_audit.py",
    "unit/test_bombs.py",
    "unit/test_columnar.py",
    "unit/test_integrations.py",
    "unit/test_orchestrators_page.py",
    "unit/test_plain_python.py",
}
"""Where half of the time of unit and flow tests goes. `make check` leaves them out to stay below three minutes."""
TESTS = Path(__file__).parent


def pytest_collection_modifyitems(items):
    """Mark what starts a server, and what takes long: whoever writes a test need not think of `make check`."""
    for item in items:
        if SERVERS & set(getattr(item, "fixturenames", ())):
            item.add_marker("server")
        if item.path.relative_to(TESTS).as_posix() in SLOW:
            item.add_marker("slow")


def pytest_runtest_setup(item):
    """Commands configure the logs of their process, capturing leaves them configured, and the simulator silences them.
    Each test has structlog as a fresh process has it, or as the simulator needs it."""
    structlog.reset_defaults()
    if TESTS / "sim" in item.path.parents:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def pytest_make_parametrize_id(val):
    """Long data has its length for a name: with several processes, every report of a test carries the name along."""
    return f"{type(val).__name__} of {len(val)}" if isinstance(val, str | bytes) and len(val) > 300 else None


@pytest.fixture(scope="session")
def seaweedfs_server(tmp_path_factory):
    """A real S3 server. Clients need its credentials too: ask for `seaweedfs` instead."""
    with server.seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as running:
        yield running


@pytest.fixture
def s3_credentials(monkeypatch):
    """The keys of the test servers, where the AWS chain looks first, and nothing of this machine's own."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for name, value in server.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def seaweedfs(seaweedfs_server, s3_credentials):
    """The real S3 server, with its credentials in the environment."""
    return seaweedfs_server


@pytest.fixture
def browser():
    """A real browser, where one is installed: `make test` sees to that. Not longer than one test: while it is open its
    event loop runs in this thread, and no other can."""
    from tests.servers import browser  # noqa: PLC0415  # few tests need what it imports

    if browser.chromium() is None:
        pytest.skip("no Chromium here; `.ci/need browser` installs it")
    with browser.running_browser() as running:
        yield running
