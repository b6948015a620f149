"""Those around a Delta table: other cleaners, tables next door and inside, clones, a new table in its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tests.sim.formats.delta_log import LOG, DeltaLog
from tests.sim.formats.place import Place
from tests.sim.world import Stored

if TYPE_CHECKING:
    from tests.sim.formats.delta import DeltaModel

DAY = 24 * 3_600_000


class Others:
    """`tables` are other Delta tables, by what they are called here."""

    def __init__(self, model: DeltaModel) -> None:
        self.model = model
        self.tables: dict[str, DeltaLog] = {}

    def steps(self) -> list[str]:
        found = ["other_vacuum", "other_vacuum", "other_log_cleanup", "next_door", "drop_and_create"]
        found.append("leave_inside" if "inside" in self.tables else "move_inside")
        return found

    def do(self, name: str) -> None:
        getattr(self, f"_{name}")()

    # ---- other cleaners

    def _other_vacuum(self) -> None:
        """Another tool deletes some of what may go."""
        place = self.model.place
        there = [name for name in sorted(self.model.free) if place.has(name)]
        for name in there:
            if self.model.world.random.random() < 0.7:
                place.remove(name)

    def _other_log_cleanup(self) -> None:
        """Another tool cleans the log, up to the newest checkpoint that no young version needs an older one than."""
        model = self.model
        log, place = model.log, model.place
        last = max((one.version for one in log.checkpoints if one.version <= model.first), default=0)
        going = [one for one in log.checkpoints if one.version < last]
        for number in range(model.start, last):
            place.remove(f"{LOG}{number:020d}.json")
            place.remove(f"{LOG}{number:020d}.crc")
        for one in going:
            for name in one.files:
                place.remove(name)
            log.checkpoints.remove(one)
        model.start = max(model.start, last)

    # ---- other tables

    def _next_door(self) -> None:
        """A table whose name begins like ours."""
        if "next door" not in self.tables:
            self._open("next door", f"{self.model.place.address}2")
        self._append("next door")

    def _move_inside(self) -> None:
        self._open("inside", f"{self.model.place.address}/inner")
        self._append("inside")

    def _leave_inside(self) -> None:
        place = self.tables.pop("inside").place
        for name in place.names():
            place.remove(name)

    def _open(self, called: str, address: str) -> None:
        place = Place(self.model.world, address, called)
        self.tables[called] = DeltaLog(place=place, configuration={}, features=())
        self.tables[called].create()

    def _append(self, called: str) -> None:
        log = self.tables[called]
        log.commit(added=[log.data()])

    def _drop_and_create(self) -> None:
        """The table is dropped, its directory removed, and another created in its place."""
        model = self.model
        if model.world.random.random() < 0.7:
            return
        for name in model.place.names():
            model.place.remove(name)
        self.tables.pop("inside", None)
        model.begin()

    # ---- what stays

    def readers(self) -> Iterator[tuple[str, Mapping[str, Stored]]]:
        for called, log in self.tables.items():
            yield f"the table {called}", log.place.stored(log.place.written)

    def lent(self) -> set[str]:
        """Names below the table that other tables read."""
        return set()

    def settle(self) -> None:
        if "inside" in self.tables:
            self._leave_inside()
