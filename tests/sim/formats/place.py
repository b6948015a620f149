"""One directory of the simulated world, with what was written there. Knows no product code."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from tests.sim.world import Stored, World


class Place:
    """Names are relative to the directory. `written` has the newest content of each name, as long as its writers want
    it: what they removed themselves is not in it, what somebody else removed is."""

    def __init__(self, world: World, address: str, who: str) -> None:
        self.world, self.address, self.who = world, address.rstrip("/"), who
        self.written: dict[str, Stored] = {}

    def put(self, name: str, data: bytes, older_ms: int = 0) -> str:
        at = self.world.now - timedelta(milliseconds=older_ms) if older_ms else None
        self.written[name] = self.world.put(f"{self.address}/{name}", data, self.who, at)
        return name

    def put_back(self, name: str, stored: Stored) -> None:
        """As it was, by a person."""
        self.written[name] = self.world.put(f"{self.address}/{name}", stored.data, "operator", stored.modified_at)

    def remove(self, name: str) -> None:
        self.written.pop(name, None)
        self.world.remove(f"{self.address}/{name}")

    def has(self, name: str) -> bool:
        return f"{self.address}/{name}" in self.world.objects

    def age_ms(self, name: str) -> int:
        """How long ago it was written."""
        return self.ms() - int(self.written[name].modified_at.timestamp() * 1000)

    def stored(self, names: Iterable[str]) -> dict[str, Stored]:
        """What a reader of these gets, by address."""
        return {f"{self.address}/{name}": self.written[name] for name in names}

    def names(self) -> list[str]:
        """Everything that is there, whoever wrote it."""
        start = len(self.address) + 1
        return [address[start:] for address, _ in self.world.below(f"{self.address}/")]

    def ms(self) -> int:
        return self.world.ms()

    def uuid(self) -> str:
        return self.world.uuid()
