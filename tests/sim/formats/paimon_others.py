"""Those around a Paimon table: Java's own expiry, tags and branches that go, tables next door, a new table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tests.sim.formats.paimon_log import PaimonLog, Root
from tests.sim.world import Stored

if TYPE_CHECKING:
    from tests.sim.formats.paimon import PaimonModel


class Others:
    """Steps that are no commit to the table."""

    def __init__(self, model: PaimonModel) -> None:
        self.model, self.world = model, model.world
        self.next_door: PaimonLog | None = None

    def steps(self) -> list[str]:
        log = self.model.log
        found = ["neighbour", "drop_and_create"]
        if log.snapshots():
            found += ["other_expiry", "other_expiry"]
        if log.snapshots(kind="tag"):
            found += ["delete_tag", "roll_back_to_tag"]
        if any(log.states):
            found += ["delete_branch", "fast_forward"]
        if self.model.consumers:
            found.append("delete_consumer")
        return found

    def do(self, name: str) -> None:
        getattr(self, f"_{name}")()

    # ---- other cleaners

    def _other_expiry(self) -> None:
        """Java expires the oldest snapshots: their own files, and what nothing else needs."""
        model, log = self.model, self.model.log
        able = [one for one in log.snapshots()[:-1] if one in model.rules.doomed]
        going = able[: self.world.random.randint(0, 3)]
        for one in going:
            if model.rules.decoupled:
                log.copy(one, f"changelog/changelog-{one.number}", "changelog")
            log.remove(one.address)
        self._clean(going)
        if going:
            log.hint("EARLIEST", log.snapshots()[0].number)

    def _clean(self, gone: list[Root]) -> None:
        """Delete what these needed and nobody else does."""
        self.model.changed()
        wanted = self.model.wanted()
        for root in gone:
            for name in sorted(root.whole | root.changelog):
                if name not in wanted:
                    self.model.log.remove(name)

    # ---- tags and branches

    def _delete_tag(self) -> None:
        """By Java, with what only it needed, or by Python, which leaves everything."""
        root = self.world.random.choice(self.model.log.snapshots(kind="tag"))
        self.model.log.remove(root.address)
        if self.world.random.random() < 0.5:
            self._clean([root])

    def _roll_back_to_tag(self) -> None:
        """Everything after the tag goes, and its snapshot is written anew where it has expired."""
        log = self.model.log
        tag = self.world.random.choice(log.snapshots(kind="tag"))
        before = log.roots.get(log.at(f"snapshot/snapshot-{tag.number}"))
        if before is not None and (before in self.model.rules.doomed or before.document["id"] != tag.document["id"]):
            return
        self.model.goes_back(tag.number)
        for kind in ("snapshot", "tag", "changelog"):
            for one in log.snapshots(kind=kind):
                if one.number > tag.number:
                    log.remove(one.address)
        if before is None:
            log.copy(tag, f"snapshot/snapshot-{tag.number}", "snapshot")
        log.states[""] = log.roots[log.at(f"snapshot/snapshot-{tag.number}")].state
        log.hint("LATEST", tag.number)
        log.hint("EARLIEST", log.snapshots()[0].number)

    def _delete_branch(self) -> None:
        name = self.world.random.choice([one for one in self.model.log.states if one])
        self._remove_branch(name)

    def _remove_branch(self, name: str) -> None:
        log = self.model.log
        for address in [one for one, _ in self.world.below(log.at("", name))]:
            log.remove(address)
        del log.states[name]

    def _fast_forward(self) -> None:
        """The main table becomes the branch, from the branch's first snapshot on."""
        log = self.model.log
        name = self.world.random.choice([one for one in log.states if one])
        taken = log.snapshots(name)
        main = log.snapshots()
        if not taken or any(one.number >= taken[0].number and one in self.model.rules.doomed for one in main):
            return
        self.model.goes_back(taken[0].number - 1)
        if taken[0].number > main[-1].number + 1:
            self.model.forwards.append((self.world.calls, self.world.effected))
        for kind in ("snapshot", "tag"):
            for one in log.snapshots(kind=kind):
                if one.number >= taken[0].number:
                    log.remove(one.address)
        for one in taken:
            log.copy(one, f"snapshot/snapshot-{one.number}", "snapshot")
        for one in log.snapshots(name, kind="tag"):
            log.copy(one, f"tag/{one.address.rpartition('/')[2]}", "tag")
        log.states[""] = log.states[name]
        log.remove(log.at("snapshot/LATEST"))  # the branch's is copied, which has none before its first commit
        if log.at("snapshot/LATEST", name) in self.world.objects:
            log.hint("LATEST", taken[-1].number)

    def _delete_consumer(self) -> None:
        name = self.world.random.choice(sorted(self.model.consumers))
        del self.model.consumers[name]
        self.model.log.remove(self.model.log.at(f"consumer/consumer-{name}"))

    # ---- other tables

    def _neighbour(self) -> None:
        """A table whose name begins like ours."""
        if self.next_door is None:
            self.next_door = PaimonLog(self.world, f"{self.model.location}2", {})
        self.next_door.commit(adds=[self.next_door.data("a")])

    def _drop_and_create(self) -> None:
        """The table is dropped, with all that it has, and another is created in its place."""
        model = self.model
        if self.world.random.random() < 0.7:
            return
        for top in (model.location, model.external):
            for address in [one for one, _ in self.world.below(f"{top}/")]:
                self.world.vacuumed.add(address)
                self.world.remove(address)
        model.create()
        model.dropped = (self.world.calls, self.world.effected)

    # ---- what stays

    def readers(self) -> Iterator[tuple[str, Mapping[str, Stored]]]:
        if self.next_door is not None:
            yield "the table next door", self.next_door.written

    def settle(self) -> None:
        """Nobody is left."""
