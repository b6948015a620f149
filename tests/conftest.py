"""Servers that several suites share. Each starts once per test process, when a test first asks for it."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings
from tests.builders.stores import AGED_BY_MTIME
from tests.servers import seaweedfs as server

# A busy machine is slow, which says nothing about the law that is being checked.
settings.register_profile("lakesweep", deadline=None)
settings.load_profile("lakesweep")

# For every command and service that a test starts.
os.environ.update(AGED_BY_MTIME)


SERVERS = {"seaweedfs_server", "postgres_server", "postgres"}
"""Fixtures that start a server of somebody else's."""


def pytest_collection_modifyitems(items):
    """Whoever asks for a server is marked, so that `make check` can leave it out."""
    for item in items:
        if SERVERS & set(getattr(item, "fixturenames", ())):
            item.add_marker("server")


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
