"""Which snapshots and changelogs of a Paimon table may be closed, by its options and the operator's rules."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.sim.formats import paimon_drops as drops
from tests.sim.formats.paimon_log import Root
from tests.sim.world import Lost, Stored

if TYPE_CHECKING:
    from tests.sim.formats.paimon import PaimonModel

HOUR = 3_600_000
SLACK = 20 * 60_000
"""A service's clock may be ahead of the writers' by what `max_clock_skew_minutes` allows, and a little."""
UNLIMITED = 2**31 - 1


class Rules:
    """`doomed` are roots that may be closed: once there, always there."""

    def __init__(self, model: PaimonModel) -> None:
        self.model, self.world = model, model.world
        self.doomed: set[Root] = set()
        self.closed: dict[str, Root] = {}
        self.closed_now: list[Root] = []
        """Snapshots that the product has closed in this cycle."""

    # ---- options

    def draw(self) -> dict[str, str]:
        """Options of a new table."""
        chance = self.world.random
        self.producer = chance.choice(("none", "none", "input"))
        self.decoupled = chance.random() < 0.3
        self.changelog_only = self.decoupled and chance.random() < 0.3
        self.options: dict[str, str] = {}
        self.partition_days = chance.choice((1, 2, 4)) if chance.random() < 0.3 else None
        if self.partition_days is not None:
            self.options["partition.expiration-time"] = f"{self.partition_days} d"
            self.options["partition.timestamp-formatter"] = "yyyy-MM-dd"
            self.options["partition.expiration-check-interval"] = "0 s"
            self.options["manifest.compression"] = "none"
        self.by_update = "partitions" in self.model.extras and chance.random() < 0.5
        if "partitions" in self.model.extras:
            self._draw_partitions()
        self._draw_retention()
        return self.options

    def _draw_partitions(self) -> None:
        """Partitions that always expire, of tables whose manifests are merged often."""
        self.partition_days = self.partition_days or self.world.random.choice((1, 2, 4))
        self.options["partition.expiration-time"] = f"{self.partition_days} d"
        self.options["partition.timestamp-formatter"] = "yyyy-MM-dd"
        self.options["partition.expiration-check-interval"] = "0 s"
        self.options["manifest.compression"] = "none"
        self.options["manifest.merge-min-count"] = self.world.random.choice(("2", "3", "30"))
        if self.by_update:
            self.options["partition.expiration-strategy"] = "update-time"

    def redraw(self) -> None:
        """Somebody alters the retention."""
        self._draw_retention()

    def _draw_retention(self) -> None:
        chance, options = self.world.random, self.options
        options.pop("snapshot.num-retained.max", None)
        self.changelog_hours = 0
        self.least = chance.choice((1, 1, 2, 3, 5))
        self.hours = chance.choice((1, 2, 12, 24, 48))
        self.most = UNLIMITED
        options["snapshot.num-retained.min"] = str(self.least)
        options["snapshot.time-retained"] = f"{self.hours} h"
        if chance.random() < 0.3:
            self.most = self.least + chance.choice((0, 1, 4))
            options["snapshot.num-retained.max"] = str(self.most)
        if self.producer != "none":
            options["changelog-producer"] = self.producer
        if self.decoupled:
            self.changelog_hours = self.hours + chance.choice((1, 12, 48))
            options["changelog.time-retained"] = f"{self.changelog_hours} h"
            options["consumer.changelog-only"] = "true" if self.changelog_only else "false"

    # ---- who may go

    def wait_ms(self) -> int:
        """How long a file waits that nobody has committed."""
        rules = self.world.rules
        streams = any(root.stream for root in self.model.log.roots.values())
        return int(max(rules.grace, rules.stream_state if streams else 0) * HOUR)

    def age(self) -> None:
        self.doomed.update(self.due(SLACK))

    def due(self, slack: int = 0) -> list[Root]:
        """Roots that may be closed as things are now."""
        log, consumers = self.model.log, list(self.model.consumers.values())
        snapshots = log.snapshots()
        if not snapshots:
            return []
        latest = snapshots[-1].number
        newest = {one.stream: one for one in snapshots if one.stream}
        now = self.world.ms() + slack
        needed = {one for one in newest.values() if now - one.made_ms <= self.world.rules.stream_state * HOUR}
        found = self._due(snapshots, latest, self.hours, [] if self.changelog_only else consumers, needed, now)
        changelogs = log.snapshots(kind="changelog")[:-1] if self.decoupled else []
        return found + self._due(changelogs, latest, self.changelog_hours, consumers, set(), now)

    def _due(
        self, roots: Sequence[Root], latest: int, hours: int, consumers: list[int], needed: set[Root], now: int
    ) -> list[Root]:
        for index, root in enumerate(roots):
            following = roots[index + 1].made_ms if index + 1 < len(roots) else root.made_ms
            young = root.number > latest - self.most and max(root.made_ms, following) >= now - hours * HOUR
            held = root.number > latest - self.least or any(one <= root.number for one in consumers)
            if root.number == latest or held or young or root in needed:
                return list(roots[:index])
        return list(roots)

    # ---- what the product did

    def judge_closed(self, root: Root) -> None:
        """The product has deleted a root's own file; `noticed` has seen to it that it was doomed."""
        log = self.model.log
        self.closed[root.address] = root
        if root.kind == "snapshot":
            self.closed_now.append(root)
            older = [one.address for one in log.snapshots() if one.number < root.number]
            if older and root.address.startswith(log.at("snapshot/")):
                raise Lost(f"{root.address} was closed before {older[0]}: history has a hole")
        if root.kind == "snapshot" and self.decoupled:
            left = log.roots.get(name := log.at(f"changelog/changelog-{root.number}")) or self.closed.get(name)
            if left is None or left.document != root.document:
                raise Lost(f"{root.address} was closed and left no changelog behind")
        if root is self.model.extra.crossed:
            self.model.extra.owed = root
        elif root.kind == "snapshot" and not log.snapshots():
            raise Lost(f"{root.address} was the last snapshot of the table")

    def judge_written(self, address: str, stored: Stored) -> None:
        """The product may leave changelogs behind, write hints, and put a snapshot back."""
        log = self.model.log
        name = address.removeprefix(f"{log.address}/")
        if name == "snapshot/LATEST" and self.model.hides_rollback:
            raise Lost(f"the product leads readers to {self.model.astray}, away from a rollback")
        if name in ("snapshot/EARLIEST", "snapshot/LATEST", "changelog/EARLIEST", "changelog/LATEST"):
            return
        if name.startswith("manifest/"):
            log.written[address] = stored  # of a commit that drops partitions: nobody wants it before that
            return
        document = json.loads(stored.data)
        put_back = address in self.closed and self.closed[address].document == document
        if name.startswith("snapshot/") and not put_back:
            drops.take_over(self.model, address, stored)
            return
        kind = "changelog" if name.startswith("changelog/") else "snapshot"
        source = log.roots.get(log.at(f"snapshot/snapshot-{document['id']}")) if kind == "changelog" else None
        # Another cleaner may have closed the same snapshot a moment ago, and left the same changelog.
        source = source or self.closed.get(address) or log.roots.get(address)
        if source is None or source.document != document:
            raise Lost(f"the product wrote {address}, which nobody asked it to")
        log.written[address] = stored
        log.take_over(source, address, kind)
        self.model.changed()
