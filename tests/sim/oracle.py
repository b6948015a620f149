"""Was anything lost? Asks the model what everybody may still read, and looks whether it is there. No product code.

It also reads the audit trail as a stranger would: what is to go must be in it before it goes, and what it says is gone
must be gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from tests.sim.formats import Model
from tests.sim.world import Lost, Stored, World

_OWN = "s3://artifacts/"
"""Where the product keeps its audit trail."""


class Oracle:
    """Looks at every delete and overwrite of the product as it happens, and at everything after every step."""

    def __init__(self, world: World, model: Model) -> None:
        self._world, self._model = world, model
        self._announced: set[str] = set()
        self._told: set[str] = set()
        world.watchers.append(self.look)

    def look(self, address: str, stored: Stored | None, process: str) -> None:
        """The product has deleted an object, or written one: does anybody miss what was there?"""
        if stored is not None and "/audit/" in address:
            for record in _records(stored.data):
                (self._announced if record["record"] == "delete" else self._told).add(record["path"])
        elif stored is None and address not in self._announced and address not in self._world.discarded:
            raise Lost(f"{process} deleted {address}, which the audit trail had not announced")
        readers = self._model.readers()
        if address.startswith(_OWN):
            next(readers, None)  # nobody reads what the product keeps for itself, but time has passed for all
            return
        for who, files in readers:
            wanted = files.get(address)
            if wanted is not None and wanted is not stored and (stored is None or wanted.data != stored.data):
                what = "deleted" if stored is None else "overwrote"
                raise Lost(f"{process} {what} {address}, which is needed: {who}")

    def check(self) -> None:
        """Everything that everybody may ask for is there, byte for byte, and nothing was found lost on the way."""
        if self._world.verdict is not None:
            raise self._world.verdict
        objects = self._world.objects
        for who, files in self._model.readers():
            for address, wanted in files.items():
                found = objects.get(address)
                if found is not wanted and (found is None or found.data != wanted.data):
                    raise Lost(f"{address} is {'gone' if found is None else 'another object'}: {who}")

    def check_told(self, deleted: Sequence[str], *, whole: bool) -> None:
        """After a run: the trail tells of nothing that did not go, and, if the run ended well, of all that did."""
        really = set(deleted)
        if invented := sorted(self._told - really):
            raise Lost(f"the audit trail says that {invented[0]} was deleted, and it was not")
        if whole and (untold := sorted(really - self._told)):
            raise Lost(f"{untold[0]} was deleted, and the audit trail does not say so")
        self._announced, self._told = set(), set()

    def check_quiet(self, outcomes: list[str]) -> None:
        """The world has been quiet for long: nothing dead is left, or a person was told what to do."""
        dead, overdue = sorted(self._model.dead()), self._model.overdue()
        last = outcomes[-1] if outcomes else "no cycle"
        if last.startswith("refused ") and last.removeprefix("refused ") in self._model.lasting_reasons:
            self._world.seen[f"at the end a person has to settle {last.removeprefix('refused ')}"] += 1
            return
        if not last.startswith("done"):
            raise Lost(f"in a quiet world the cycles end with: {', '.join(outcomes)}")
        if overdue:
            raise Lost(f"after {len(outcomes)} quiet cycles these are not expired: {', '.join(map(str, overdue))}")
        if dead:
            raise Lost(f"after {len(outcomes)} quiet cycles {len(dead)} dead objects are left, first {dead[0]}")


def _records(segment: bytes) -> Iterator[dict[str, str]]:
    """What a segment of the trail announces and reports."""
    for line in segment.splitlines():
        if line.startswith(b'{"record":"delete'):
            record = json.loads(line)
            if record["record"] in ("delete", "deleted"):
                yield record
