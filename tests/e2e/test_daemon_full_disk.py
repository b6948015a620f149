"""A disk that is full under the running service: the run says so, deletes nothing, and works again afterwards."""

from __future__ import annotations

import pytest
from tests.servers.daemon import ORPHANS, make_place
from tests.servers.mounts import full_disk

TABLE = "acme/prod/orders"


def orphans_left(place):
    return len(list(place.lakes["acme"].root.glob("**/orders/data/orphan-*")))


@pytest.mark.parametrize("directory", ["artifacts/plans", "artifacts/audit"])
def test_a_full_disk_fails_the_run_and_keeps_every_file(tmp_path, directory):
    place = make_place(tmp_path)
    with place.service() as api, full_disk(tmp_path / "state" / directory) as filler:
        api.knows(TABLE)
        failed = api.run(TABLE, execute=True)
        assert failed["outcome"] == "failed", failed
        assert "No space left on device" in failed["reason"], failed
        assert orphans_left(place) == ORPHANS["acme"]["orders"]

        filler.unlink()
        assert api.run(TABLE, execute=True)["outcome"] == "done"
        assert orphans_left(place) == 0


def test_a_full_disk_for_the_cache_costs_only_speed(tmp_path):
    place = make_place(tmp_path)
    with full_disk(tmp_path / "state" / "cache"), place.service() as api:
        api.knows(TABLE)
        assert api.run(TABLE, execute=True)["outcome"] == "done"
        assert orphans_left(place) == 0
