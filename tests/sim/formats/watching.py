"""A model that looks at every single delete of the product at the moment it happens. Knows no product code."""

from __future__ import annotations

from tests.sim.formats import Model
from tests.sim.world import Lost, Stored, World


class WatchingModel(Model):
    """Subclasses call `changed` whenever what readers want may have grown. Time alone only lets more go."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._wanted: dict[str, tuple[str, Stored]] | None = None
        self.verdict: Exception | None = None
        self.cycle = self.frozen_from = 0
        self.frozen = ""
        """Why nothing at all may be deleted at present: the table is damaged, or under rules that nobody here knows."""

    def begin(self) -> None:
        """A table that mostly has a past: then the first cycle finds something to judge."""
        self.create()
        for _ in range(self.world.random.choice((0, 2, 5, 8))):
            self.world.advance(self.hours(0.1, 30))
            self.do(self.world.random.choice([name for name in self.steps() if name not in self.rare]))

    rare: tuple[str, ...] = ("drop_and_create", "move_inside")
    """Steps that no table's past has."""

    def create(self) -> None:
        """A new table, where there is none."""
        raise NotImplementedError

    def changed(self) -> None:
        """What was found to be wanted no longer holds."""
        self._wanted = None

    def wanted(self) -> dict[str, tuple[str, Stored]]:
        """Every object that somebody may ask for, and who, as of the last change."""
        if self._wanted is None:
            found: dict[str, tuple[str, Stored]] = {}
            for who, objects in self.readers():
                found.update((address, (who, stored)) for address, stored in objects.items())
            self._wanted = found
        return self._wanted

    def noticed(self, address: str, stored: Stored | None, process: str) -> None:
        """Judge what the product did, and remember the verdict: the product may catch what is raised into it."""
        if not address.startswith(self.tenant_root):
            return
        try:
            self.judge(address, stored, process)
        except Exception as exc:
            self.verdict = self.verdict or exc
            raise

    def judge(self, address: str, stored: Stored | None, process: str) -> None:
        """The product has written, or deleted, something below the tenant's root."""
        raise NotImplementedError

    def cycle_begins(self) -> None:
        """The product reads everything anew."""
        self.cycle += 1

    def freeze(self, why: str, *, damaged: bool) -> None:
        """From now on nothing may be deleted. What a cycle has read before it was damaged is true all the same, so
        damage counts from the next cycle on."""
        self.frozen, self.frozen_from = why, self.cycle + 1 if damaged else 0

    def announce_verdict(self) -> None:
        """To be called whenever readers are asked for."""
        if self.verdict is not None:
            raise self.verdict

    def check_deleted(self, address: str, process: str) -> None:
        """Raises Lost if somebody wants what the product has just deleted. What it wrote itself for a commit that it
        then gave up (`World.discarded`) was never the table's, and may go at any time."""
        if self.frozen and self.cycle >= self.frozen_from and address not in self.world.discarded:
            raise Lost(f"{process} deleted {address} although {self.frozen}")
        if address in self.wanted():
            self.changed()
            who = self.wanted().get(address)
            if who is not None:
                raise Lost(f"{process} deleted {address}, which {who[0]} needs")
