"""Those around a Delta table: other cleaners, tables next door and inside, clones, a new table in its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from tests.sim.formats.delta_log import LOG, Added, DeltaLog
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
        self.borrowed: dict[str, str] = {}
        """What a shallow clone reads of our files: how it spells them, and what they are called here."""
        self.once: set[str] = set()
        """What the clone read when it was made. Its log still has that version, whatever it removed since."""

    def steps(self) -> list[str]:
        found = ["other_vacuum", "other_vacuum", "other_log_cleanup", "next_door", "drop_and_create"]
        found.append("leave_inside" if "inside" in self.tables else "move_inside")
        found += ["write_to_clone", "drop_clone"] if "clone" in self.tables else ["clone"]
        return found

    def do(self, name: str) -> None:
        getattr(self, f"_{name}")()

    # ---- other cleaners

    def _other_vacuum(self) -> None:
        """Another tool deletes some of what may go."""
        place = self.model.place
        lent = self.lent()
        there = [name for name in sorted(self.model.free) if place.has(name) and name not in lent]
        for name in there:
            if self.model.world.random.random() < 0.7:
                place.remove(name)
                self.model.world.vacuumed.add(f"{place.address}/{name}")

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
        self.write_to("next door")

    def _move_inside(self) -> None:
        self._open("inside", f"{self.model.place.address}/inner")
        self.write_to("inside")

    def _leave_inside(self) -> None:
        place = self.tables.pop("inside").place
        for name in place.names():
            place.remove(name)

    def _open(self, called: str, address: str, added: Sequence[Added] = ()) -> DeltaLog:
        place = Place(self.model.world, address, called)
        features = ("deletionVectors",) if added else ()
        self.tables[called] = DeltaLog(place=place, configuration={}, features=features)
        self.tables[called].create(added)
        return self.tables[called]

    # ---- shallow clones: their own log, and our files

    def _clone(self) -> None:
        """Of the newest version, or of an older one whose files are all there."""
        model = self.model
        able = [number for number in range(model.first, model.log.version) if model.restorable(number)]
        version = model.log.versions[model.world.random.choice([*able, model.log.version])]
        address = model.place.address
        added = [
            Added(spelled=f"{address}/{quote(one.path)}", path=None)
            for one in version.live
            if one.path and not one.vector
        ]
        if not added:
            return
        self.borrowed = {one.spelled: unquote(one.spelled.removeprefix(f"{address}/")) for one in added}
        self.once = {*self.borrowed.values()}
        home = "s3://lake/far" if "far clones" in model.extras else address.rpartition("/")[0]
        log = self._open("clone", f"{home}/clone", added)
        if model.world.random.random() < 0.5:
            log.checkpoint("classic")

    def _write_to_clone(self) -> None:
        """It changes by itself: it appends files of its own, and removes some of ours."""
        log, chance = self.tables["clone"], self.model.world.random
        removed = [one for one in log.live.values() if chance.random() < 0.2]
        for one in removed:
            self.borrowed.pop(one.spelled, None)
        log.commit(added=[log.data()], removed=removed)
        if chance.random() < 0.3:
            log.checkpoint("classic")

    def _drop_clone(self) -> None:
        place = self.tables.pop("clone").place
        self.borrowed.clear()
        self.once.clear()
        for name in place.names():
            place.remove(name)

    def write_to(self, called: str) -> None:
        log = self.tables[called]
        log.commit(added=[log.data()])

    def _drop_and_create(self) -> None:
        """The table is dropped, its directory removed, and another created in its place."""
        model = self.model
        if model.world.random.random() < 0.7:
            return
        for name in model.place.names():
            model.world.vacuumed.add(f"{model.place.address}/{name}")
            model.place.remove(name)
        self.tables.pop("inside", None)
        if "clone" in self.tables:
            self._drop_clone()  # whoever drops the source has done away with its clones
        model.create()

    # ---- what stays

    def readers(self) -> Iterator[tuple[str, Mapping[str, Stored]]]:
        for called, log in self.tables.items():
            yield f"the table {called}", log.place.stored(log.place.written)
        if self.borrowed:
            yield "a shallow clone", self.model.place.stored(self.borrowed.values())

    def lent(self) -> set[str]:
        """Names below the table that other tables read."""
        return {*self.borrowed.values(), *self.model.extra.beside.named()}

    def settle(self) -> None:
        if "inside" in self.tables:
            self._leave_inside()
