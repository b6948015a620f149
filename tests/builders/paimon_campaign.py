"""A writer's action before any one call of a cycle, and Java as the judge of what is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.builders import paimon
from tests.builders.faults import Faults
from tests.builders.paimon_java import JavaTable, Peer
from tests.peers.paimon import PeerError

from lakesweep.model.run import CleanupRun

Act = Callable[[JavaTable], object]
DT = "2024-01-01"

ACTIONS: dict[str, Act] = {
    "tag the oldest": lambda table: table("tag", name="late", snapshot=table.snapshots()[0]),
    "tag one that goes": lambda table: table("tag", name="late", snapshot=table.snapshots()[1]),
    "roll back to the oldest": lambda table: table("rollback", snapshot=table.snapshots()[0]),
    "roll back to one that goes": lambda table: table("rollback", snapshot=table.snapshots()[-3]),
    "roll back by one": lambda table: table("rollback", snapshot=table.snapshots()[-2]),
    "append": lambda table: table.write([90, DT, "late"]),
    "overwrite": lambda table: table.write([91, DT, "late"], overwrite={"dt": DT}),
    "drop a partition": lambda table: table("drop_partitions", partitions=[{"dt": DT}]),
    "merge manifests": lambda table: table("compact_manifests"),
    "expire as well": lambda table: table("expire", retain_min=2, retain_millis=0),
    "consume the oldest": lambda table: table.consumer("late", table.snapshots()[0]),
    "branch from one that goes": lambda table: (
        table("tag", name="late", snapshot=table.snapshots()[1]),
        table("branch", name="late", tag="late"),
    ),
}


@dataclass(kw_only=True)
class Acting(Faults):
    """Acts before call number `moment`."""

    moment: int | None = None
    act: Callable[[], None] = field(default=lambda: None)

    def hit(self, name: str, error: Callable[[], Exception], *, after: bool) -> None:
        if not after and len(self.calls) == self.moment:
            self.act()
        super().hit(name, error, after=after)


@dataclass(kw_only=True)
class Round:
    """One cycle on a copy of a table, with one action in it."""

    run: CleanupRun
    calls: list[str]
    """On storage, on the state store and on the audit trail, the deletes among them."""
    wrong: list[str]
    """What was promised and cannot be read, or reads otherwise."""


def readings(table: JavaTable) -> dict[str, list[str]]:
    """Every snapshot, tag and branch by Java. Raises PeerError if one cannot be read."""
    found = {f"snapshot {number}": table("read", snapshot=number) for number in table.snapshots()}
    found |= {f"tag {name}": table("read", tag=name) for name in table.tags()}
    return found | {f"branch {name}": table("read", on_branch=name) for name in table.branches()}


async def play(built: JavaTable, peer: Peer, at: Path, *, action: Act | None, moment: int | None) -> Round:
    """Copy, clean with the action in between, and let Java judge: whatever stands is whole and reads as it did, and
    what the action made and was told that it made stands."""
    table = JavaTable(path=paimon.copy_of(built.path, at), peer=peer)
    promised: dict[str, list[str]] = {}
    wrong: list[str] = []

    def act() -> None:
        try:
            if action is not None:
                action(table)
        except (PeerError, IndexError):
            pass  # what it wanted is gone already, and it was told so
        try:
            seen = readings(table)
        except PeerError as exc:
            wrong.append(f"right after the action: {exc}")
        else:
            promised.update({what: rows for what, rows in seen.items() if not what.startswith("snapshot")})
            latest = f"snapshot {table.snapshots()[-1]}"
            promised[latest] = seen[latest]

    bench = paimon.bench(at, at / "scratch")
    bench.faults = Acting(moment=moment, act=act)
    run = await paimon.clean(table.path, bench, paimon.everything_old(batch_size=3))
    try:
        left: dict[str, Any] = readings(table)
    except PeerError as exc:
        return Round(run=run, calls=bench.faults.calls, wrong=[*wrong, f"afterwards: {exc}"])
    wrong += [f"{what} is gone or reads otherwise" for what, rows in promised.items() if left.get(what) != rows]
    if not left:
        wrong.append("no snapshot is left")
    return Round(run=run, calls=bench.faults.calls, wrong=wrong)
