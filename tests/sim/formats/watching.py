"""A model that looks at every single delete of the product at the moment it happens. Knows no product code."""

from __future__ import annotations

from tests.sim.formats import Model
from tests.sim.world import Lost, Stored, World


class WatchingModel(Model):
    """Subclasses call `changed` whenever what readers want may have grown. Time alone only lets more go."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._wanted: dict[str, tuple[str, Stored]] | None = None

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

    def check_deleted(self, address: str, process: str) -> None:
        """Raises Lost if somebody wants what the product has just deleted."""
        if address in self.wanted():
            self.changed()
            who = self.wanted().get(address)
            if who is not None:
                raise Lost(f"{process} deleted {address}, which {who[0]} needs")
