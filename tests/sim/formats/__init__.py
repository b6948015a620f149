"""One model per table format: everybody who uses a table, except the product. No product code is used here.

A model writes real bytes into the world and remembers, on its own account, what each reader may still ask for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import ClassVar

from tests.sim.world import Stored, World


class Model:
    """One table (`location`), its neighbours, and all who write and read them. Subclasses are one per format."""

    format: ClassVar[str]
    """`iceberg`, `delta` or `paimon`."""
    tenant_root: ClassVar[str] = "s3://lake/"
    location: str = "s3://lake/wh/db/t"
    """Where the table is; its steps may move it."""
    more: bool = False
    """Is it a story of the later seeds, in which the world has more steps and kinds of tables? See profiles.py."""
    extras: frozenset[str] = frozenset()
    """What else there is in its world: see `profiles.Profile`."""

    lists_seldom: bool = False
    """Do some cycles list nothing, so that they cannot notice a missing file? Known from `anywhere.FIRST` on."""

    commits: ClassVar[frozenset[str]] = frozenset()
    """Revivals that change which commit is the newest: the last look of the product shows them."""

    def __init__(self, world: World) -> None:
        """Must not write yet: `begin` does."""
        self.world = world
        world.watchers.append(self.noticed)

    def places(self) -> Mapping[str, str]:
        """The settings of the table's dataset that are addresses: `location` or `warehouse`."""
        return {}

    def settings(self) -> Mapping[str, str | bool]:
        """Other settings of its dataset."""
        return {}

    def begin(self) -> None:
        """Create the table, chosen at random from the kinds that there are (version, partitions, properties)."""
        raise NotImplementedError

    def cycle_begins(self) -> None:
        """The product begins a cycle."""

    def cycle_ended(self, outcome: str) -> None:
        """It is over."""

    def steps(self) -> Sequence[str]:
        """Names of what may happen now, in an order that depends on nothing but the world. One that should come up more
        often stands there more often. The same name may be given to `do` in a later, shrunk replay: `do` is only
        called with a name that `steps` gives at that moment."""
        raise NotImplementedError

    def revivals(self) -> Sequence[str]:
        """Steps that bring back what nothing refers to any more: an old path added again, a catalog or a log set back.
        They only happen at moments when the product can still notice, never between its last question and a delete."""
        return ()

    def crossings(self) -> Sequence[str]:
        """The same between the last question and the delete, where the product can only repair what it did."""
        return ()

    def do(self, name: str) -> None:
        """Let it happen, at once and whole. All chance comes from `world.random`, names from `world.uuid()`."""
        raise NotImplementedError

    def readers(self) -> Iterator[tuple[str, Mapping[str, Stored]]]:
        """Everybody who may still ask for something (a snapshot, a tag, a consumer, a job with uncommitted files, a
        neighbour, a stream that recovers, …), with the objects that they would read, as they were written."""
        raise NotImplementedError

    def expiring(self) -> set[str]:
        """Readers of snapshots that are there and may be closed, where closing one means deleting its file."""
        return set()

    def noticed(self, address: str, stored: Stored | None, process: str) -> None:
        """The product has written (or, with None, deleted) an object. A commit of the product is taken over here, and
        judged: raise Lost if it expired what it may not."""

    reasons: set[str]
    """Codes of refusals that this table may end with, since something has happened that only a person can settle."""

    @property
    def lasting_reasons(self) -> set[str]:
        """Those with which the story may end."""
        return self.reasons

    def restore(self) -> None:
        """A run ended with a refusal: the operator does what its sentence says, if that is something to be done."""

    def settle(self) -> None:
        """The story ends: every job commits or gives up, other writers stop. After it `dead` is what must go."""

    def dead(self) -> set[str]:
        """Objects below the table's places that no reader wants and that have to go once they are old enough."""
        raise NotImplementedError

    def overdue(self) -> Sequence[object]:
        """Snapshots (or the like) that should have been expired by now, when all has been quiet for long."""
        return ()

    # ---- help for subclasses

    def hours(self, least: float, most: float) -> timedelta:
        """A span by chance."""
        return timedelta(hours=self.world.random.uniform(least, most))


def open_model(format: str, world: World) -> Model:
    """The model of that name, with nothing written yet."""
    if format == "iceberg":
        from tests.sim.formats.iceberg import IcebergModel  # noqa: PLC0415 - only what a story needs is loaded

        return IcebergModel(world)
    if format == "delta":
        from tests.sim.formats.delta import DeltaModel  # noqa: PLC0415

        return DeltaModel(world)
    if format == "paimon":
        from tests.sim.formats.paimon import PaimonModel  # noqa: PLC0415

        return PaimonModel(world)
    raise ValueError(f"no such format: {format}")
