"""A stop, a pause and a changed setting reach three real services on one PostgreSQL before their next page."""

from __future__ import annotations

import pytest
from tests.servers.postgres import running_postgres
from tests.servers.replicas import LABELS, Replicas, replicas

ORPHANS = 1500


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    with (
        running_postgres() as postgres,
        replicas(tmp_path_factory.mktemp("fleet"), postgres.url(), orphans=ORPHANS) as running,
    ):
        yield running


def stop_by_api(fleet: Replicas) -> None:
    fleet.post("b", "/api/v1/stop", {"reason": "wrong files go"})


def stop_by_command(fleet: Replicas) -> None:
    fleet.command("stop", "--all", "--reason", "wrong files go")


def pause_by_api(fleet: Replicas) -> None:
    fleet.post("c", "/api/v1/pause", {"scope": "acme"})


def change_a_setting(fleet: Replicas) -> None:
    fleet.change(dry_run=True)
    for one in fleet.running.values():
        one.until_logged("settings_reloaded")


WAYS = {
    stop_by_api: lambda fleet: fleet.post("a", "/api/v1/resume", {"scope": "*"}),
    stop_by_command: lambda fleet: fleet.command("resume", "*"),
    pause_by_api: lambda fleet: fleet.post("a", "/api/v1/resume", {"scope": "acme"}),
    change_a_setting: lambda fleet: fleet.change(dry_run=False),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_all_replicas_end_their_sweeps_before_the_next_page(fleet, way):
    fleet.sweeping()
    ended = len(fleet.finished())
    way(fleet)
    then = fleet.left()
    fleet.until(lambda: len(fleet.finished()) >= ended + len(LABELS), "sweeps go on")
    now = fleet.at_rest()
    # The request of each that was on its way already, of one file, and no other.
    assert all(then[label] - now[label] <= 1 for label in LABELS), (then, now)
    assert all(now.values()), "the sweeps were over before"
    assert fleet.at_rest() == now, "it began again by itself"
    fleet.fill()
    WAYS[way](fleet)
    fleet.until(lambda: all(count < ORPHANS for count in fleet.left().values()), "does not go on when resumed")
    fleet.lake.check_live()
