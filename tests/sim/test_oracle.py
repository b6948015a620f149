"""What is lost counts, whoever catches the error, and a file that has to be seen twice is."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest
from tests.sim.confirmed import Confirmed
from tests.sim.formats import Model
from tests.sim.oracle import Oracle
from tests.sim.world import Lost, Rules, World

ONE = "s3://lake/wh/db/t/data/one.parquet"


class Wanting(Model):
    """Somebody wants these objects."""

    format = "iceberg"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.wanted: dict = {}

    def readers(self):
        yield "a reader", self.wanted


@pytest.fixture
def world():
    found = World(rules=Rules(confirm_after=24))
    found.put(ONE, b"1", "writer")
    return found


def test_what_the_product_catches_is_lost_all_the_same(world):
    oracle = Oracle(world, Wanting(world))
    world.remove(ONE)
    with suppress(Lost):  # as code that reports every error of a call does
        world.changed(ONE, "lakesweep")
    with pytest.raises(Lost, match="had not announced"):
        oracle.check()


def told(world, model, *cycles):
    """Each cycle: how it ended, whether the file is wanted during it, and whether it goes."""
    confirmed = Confirmed(world, model)
    for outcome, wanted, goes in cycles:
        model.wanted = {ONE: world.objects[ONE]} if wanted else {}
        confirmed.begins()
        confirmed.ended([ONE] if goes else [], outcome, alone=True)
        world.advance(timedelta(hours=30))


def test_a_file_that_a_run_has_seen_long_ago_may_go(world):
    told(world, Wanting(world), ("done", False, False), ("done", False, True))


@pytest.mark.parametrize(
    "cycles",
    [
        [("done", False, True)],
        [("refused missing_files", False, False), ("done", False, True)],
        [("done", True, False), ("done", False, True)],
        [("done", False, False), ("done", True, False), ("done", False, True)],
    ],
)
def test_a_file_that_no_run_has_seen_unreferenced_since_may_not_go(world, cycles):
    with pytest.raises(Lost, match="no earlier run"):
        told(world, Wanting(world), *cycles)
