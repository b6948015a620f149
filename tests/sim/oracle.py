"""Was anything lost? Asks the model what everybody may still read, and looks whether it is there. No product code."""

from __future__ import annotations

from tests.sim.formats import Model
from tests.sim.world import Lost, Stored, World


class Oracle:
    """Looks at every delete and overwrite of the product as it happens, and at everything after every step."""

    def __init__(self, world: World, model: Model) -> None:
        self._world, self._model = world, model
        self._before: dict[str, Stored] = {}
        world.watchers.append(self.look)

    def look(self, address: str, stored: Stored | None, process: str) -> None:
        """The product has deleted an object, or written one: does anybody miss what was there?"""
        for who, files in self._model.readers():
            wanted = files.get(address)
            if wanted is not None and wanted is not stored and (stored is None or wanted.data != stored.data):
                what = "deleted" if stored is None else "overwrote"
                raise Lost(f"{process} {what} {address}, which is needed: {who}")

    def check(self) -> None:
        """Everything that everybody may ask for is there, byte for byte."""
        objects = self._world.objects
        for who, files in self._model.readers():
            for address, wanted in files.items():
                found = objects.get(address)
                if found is not wanted and (found is None or found.data != wanted.data):
                    raise Lost(f"{address} is {'gone' if found is None else 'another object'}: {who}")

    def check_quiet(self, outcomes: list[str]) -> None:
        """The world has been quiet for long: nothing dead is left, or a person was told what to do."""
        dead, overdue = sorted(self._model.dead()), self._model.overdue()
        last = outcomes[-1] if outcomes else "no cycle"
        if last.startswith("refused ") and last.removeprefix("refused ") in self._model.reasons:
            self._world.seen[f"at the end a person has to settle {last.removeprefix('refused ')}"] += 1
            return
        if not last.startswith("done"):
            raise Lost(f"in a quiet world the cycles end with: {', '.join(outcomes)}")
        if overdue:
            raise Lost(f"after {len(outcomes)} quiet cycles these are not expired: {', '.join(map(str, overdue))}")
        if dead:
            raise Lost(f"after {len(outcomes)} quiet cycles {len(dead)} dead objects are left, first {dead[0]}")
