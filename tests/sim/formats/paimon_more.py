"""What else happens to a Paimon table in the stories that are about it: see `subjects`. No product code.

`model.extras` says which of these a story has. In all other stories none of them happens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tests.sim.formats import paimon_bytes
from tests.sim.formats.paimon_log import Root
from tests.sim.world import Lost, Stored

if TYPE_CHECKING:
    from tests.sim.formats.paimon import PaimonModel

LATER_FIELD = "fieldOfALaterRelease"


class More:
    """Steps of some stories."""

    def __init__(self, model: PaimonModel) -> None:
        self.model, self.world = model, model.world
        self.inside: dict[str, Stored] = {}
        """Files of a table whose home is a partition of this one."""
        self.forget()

    def forget(self) -> None:
        """The table is created anew."""
        self.inside.clear()
        self.late: frozenset[str] = frozenset()
        """What a consumer reads that has opened a snapshot just before this cycle closed it."""
        self.crossed: Root | None = None
        self.owed: Root | None = None
        """The snapshot that a rollback went back to while the product was deleting it, and whether that has happened:
        the table has none then, and the product has to put it back."""
        self._troubles = 0

    def cycle_begins(self) -> None:
        """A person has let that consumer start from a snapshot that exists."""
        self.late = frozenset()
        self._troubles = self._count_troubles()

    def steps(self) -> list[str]:
        more, found = self.model.extras, []
        committed = self.model.log.latest() is not None
        if "partitions" in more and committed:
            found += ["write_to_old_partition"] * 2
        if "late jobs" in more:
            found += ["begin_job"] * 6
        if "rollbacks" in more and committed:
            found += ["rollback"] * 6
        if "later release" in more:
            found += ["commit_by_a_later_release"] * 3 + ["commit_with_sketches"]
        if "inner table" in more:
            found.append("leave_partition" if self.inside else "move_into_a_partition")
        return found

    def revivals(self) -> list[str]:
        more, found = self.model.extras, []
        if "returns" in more and self.model.log.latest() is not None:
            found += ["roll_back_and_commit"] * 3 + ["commit_late_job"] * (3 if self.model.jobs else 0)
            found += ["consume_closed"] * 2
            found += ["commit_late_job"] * (20 if "late jobs" in more and self.model.jobs else 0)
        return found

    def crossings(self) -> list[str]:
        return ["cross_rollback"] * 20 if "crossing" in self.model.extras and self._closing() else []

    def _closing(self) -> Root | None:
        """The oldest snapshot, if the product has just asked to delete it."""
        found = self.model.log.snapshots()[:1]
        closing = found and found[0] in self.model.rules.doomed and found[0].address in self.world.asked
        return found[0] if closing and not self.model.frozen else None

    def _cross_rollback(self) -> None:
        """Somebody rolls the table back to the very snapshot that is being deleted."""
        self.crossed = self._closing()
        if self.crossed is not None:
            self.model.back_to(self.crossed)
            self._troubles = self._count_troubles()
            self.world.seen["a rollback to a snapshot that is being deleted"] += 1

    def written(self, address: str) -> None:
        """By the product."""
        if self.owed is not None and self.owed.address == address:
            self.owed = self.crossed = None

    def cycle_ended(self, outcome: str) -> None:
        """Raises Lost if the table was left without a snapshot, and nothing kept the product from putting it back. A
        process that was killed leaves that to the next cycle."""
        if self.owed is not None and outcome == "killed":
            self.world.seen["a kill before a snapshot was put back"] += 1
            return
        self.model.rules.doomed.discard(self.crossed)  # if it was not deleted, it is the newest now
        owed, self.owed, self.crossed = self.owed, None, None
        if owed is None:
            return
        if self._count_troubles() == self._troubles:
            raise Lost(f"{owed.address} was deleted under a rollback to it, and was not put back")
        log = self.model.log  # else a person does it
        log.put(owed.address, owed.stored.data)
        log.take_over(owed, owed.address, "snapshot")
        self.model.changed()

    def _count_troubles(self) -> int:
        told = ("fault ", "kill ", "the clock", "the process")
        return sum(count for name, count in self.world.seen.items() if name.startswith(told))

    # ---- partitions

    def _write_to_old_partition(self) -> None:
        """A writer comes back to the partition of the oldest file."""
        log = self.model.log
        oldest = next(iter(log.states[""].live.values()), None)
        if oldest is not None:
            log.commit(adds=[log.data(oldest.partition)])

    # ---- what was to go is needed again

    def _roll_back_and_commit(self) -> None:
        """Back to any snapshot that is there, and on from it under the ids of those that are gone."""
        model, log = self.model, self.model.log
        target = self.world.random.choice(log.snapshots())
        model.rules.doomed -= {target}
        model.back_to(target)
        for _ in range(self.world.random.choice((1, 2, 3, 4))):
            log.commit(adds=[log.data(model.partition())])
        self.world.seen["a rollback to any snapshot, and commits on top of it"] += 1

    def _commit_late_job(self) -> None:
        """Its files waited longer than anybody promised to keep them, and they are there all the same."""
        model = self.model
        asked = [one for one in model.jobs if any(file.address in self.world.asked for file in one.files)]
        job = asked[-1] if "late jobs" in model.extras and asked else model.jobs[0]
        model.jobs.remove(job)
        names = [name for one in job.files for name in one.addresses()]
        if all(name in self.world.objects for name in names):
            model.log.commit(adds=job.files)
            model.free.difference_update(names)

    def _consume_closed(self) -> None:
        """A consumer has opened a snapshot just before this cycle closed it, and says so only now."""
        model = self.model
        closed = [one for one in model.rules.closed_now if all(name in self.world.objects for name in one.whole)]
        if closed and not model.rules.decoupled:
            root = self.world.random.choice(closed)
            model.set_consumer("s", root.number)
            self.late = root.whole
            self.world.seen["a consumer of a snapshot that was just closed"] += 1

    # ---- a later release of Paimon writes to it

    def _commit_by_a_later_release(self) -> None:
        log = self.model.log
        log.fields = {LATER_FIELD: 7}
        log.commit(adds=[log.data(self.model.partition())])
        log.fields = {}

    def _commit_with_sketches(self) -> None:
        """Such a release keeps files of a kind that nobody here knows, and snapshots name them."""
        log = self.model.log
        address = log.named("index", "index", b"sketches")
        log.fields, log.needs = {"sketches": address.rpartition("/")[2]}, frozenset({address})
        log.commit(adds=[log.data(self.model.partition())])
        log.fields, log.needs = {}, frozenset()
        self.model.reasons.add("unknown_snapshot_version")

    # ---- another table in a partition

    def _move_into_a_partition(self) -> None:
        """A table without partitions, whose buckets are where this one has its own."""
        home = f"{self.model.location}/dt={self.model.partition() or 'a'}"
        schema = {"version": 3, "id": 0, "fields": [], "partitionKeys": [], "primaryKeys": [], "options": {}}
        for name, data in (
            ("schema/schema-0", paimon_bytes.document(schema)),
            ("snapshot/snapshot-1", paimon_bytes.document({"version": 3, "id": 1})),
            (f"bucket-0/data-{self.world.uuid()}-0.orc", b"data"),
        ):
            self.inside[f"{home}/{name}"] = self.world.put(f"{home}/{name}", data, "a table inside")

    def _leave_partition(self) -> None:
        for address in self.inside:
            self.world.remove(address)
        self.inside.clear()

    # ---- what stays

    def readers(self) -> Iterator[tuple[str, Mapping[str, Stored]]]:
        if self.inside:
            yield "a table in a partition", self.inside
        written = self.model.log.written
        if self.owed is not None:
            whole = {name: written[name] for name in self.owed.whole if name in written}
            yield "a snapshot that a rollback went back to", whole
        if self.late:
            yield "a consumer that came late", {name: written[name] for name in self.late if name in written}

    def settle(self) -> None:
        self.late = frozenset()
        self._leave_partition()
