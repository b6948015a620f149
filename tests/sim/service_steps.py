"""Steps of a service's story that no model takes by itself: they need several of its parts at the right moment."""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.formats import Model
from tests.sim.formats.delta import DeltaModel
from tests.sim.formats.iceberg import IcebergModel
from tests.sim.formats.iceberg_table import DataFile, Table
from tests.sim.formats.paimon import PaimonModel
from tests.sim.formats.watching import WatchingModel
from tests.sim.world import World

_STRAY_FILES = 5


class SubjectSteps:
    """Of one story. `do` says whether there was such a step to take."""

    def __init__(self, world: World, model: Model) -> None:
        self.world, self.model = world, model
        self._strays: list[str] = []
        self._inside: tuple[Table, list[DataFile]] | None = None
        self._steps: dict[str, Callable[[], bool]] = {
            "stray files": self._leave_files,
            "stray files again": self._write_again,
            "begin a job": self._begin_job,
            "lend": self._lend,
            "overwrite": self._overwrite,
            "files inside": self._put_inside,
            "adopt the files inside": self._adopt,
            "back up": self._back_up,
        }

    def do(self, name: str) -> bool:
        """False if there is no such step, or if it cannot be taken."""
        step = self._steps.get(name)
        if step is None:
            return False
        self.world.say("writer", name)
        return step()

    def mend(self) -> None:
        """Somebody repairs the table before the service may go on with it."""
        if isinstance(self.model, WatchingModel) and self.model.frozen:
            self.model.do("mend")

    # ---- files that nobody names

    def _leave_files(self) -> bool:
        """A job that fails after it has written some files."""
        if isinstance(self.model, PaimonModel):
            for _ in range(_STRAY_FILES):
                self.model.do("stray")
            return True
        for _ in range(_STRAY_FILES):
            address = f"{self._place()}/part-{self.world.uuid()}.parquet"
            self.world.put(address, b"the first attempt", "writer")
            self._strays.append(address)
        return True

    def _write_again(self) -> bool:
        """It is run again, writes to the same addresses, and fails again."""
        for address in self._strays:
            if address in self.world.objects:
                self.world.put(address, b"the second attempt", "writer")
                self.world.seen["an object was replaced that a plan names"] += 1
        return True

    def _place(self) -> str:
        if isinstance(self.model, IcebergModel):
            return f"{self.model.table.location}/data"
        return self.model.location

    def _begin_job(self) -> bool:
        """Its files wait for their commit."""
        for name in ("begin a job", "begin_job"):
            if name in self.model.steps():
                self.model.do(name)
                break
        return True

    # ---- other tables

    def _lend(self) -> bool:
        """A table next door begins to use files of ours."""
        if not isinstance(self.model, IcebergModel):
            return True
        for name in ("create a table next door", "a neighbour uses our files"):
            if name in self.model.steps():
                self.model.do(name)
        return True

    def _overwrite(self) -> bool:
        """Everything is replaced: what another table uses is dead here from now on."""
        if "overwrite" in self.model.steps():
            self.model.do("overwrite")
        return True

    def _put_inside(self) -> bool:
        """Somebody copies files into a directory of the table. They are nobody's table yet."""
        model = self.model
        if isinstance(model, IcebergModel) and self._inside is None and not model.reasons:
            other = Table(self.world, "db.inside", f"{model.table.location}/inside", 2, who="neighbour")
            self._inside = (other, [other.write_data() for _ in range(3)])
        return True

    def _adopt(self) -> bool:
        """They become a table: its catalog knows it from here on."""
        if self._inside is None or not isinstance(self.model, IcebergModel):
            return False
        (other, files), self._inside = self._inside, None
        if any(self.world.objects.get(one.path) is not one.stored for one in files):
            return False
        self.model.reasons |= {"overlap", "foreign_table"}
        other.create()
        self.model.catalog[other.name] = other
        other.add(other.make_snapshot(None, files))
        other.commit()
        self.world.seen["another table came into the place while a run planned"] += 1
        return True

    # ---- people

    def _back_up(self) -> bool:
        """Somebody puts a Delta log back to a backup, together with what tells its newest checkpoint."""
        if isinstance(self.model, DeltaModel) and not self.model.frozen:
            self.model.do("restore_backup")
        return True
