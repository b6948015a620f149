"""What people and accidents do to a Paimon table: while it lasts the product must leave everything alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.formats import paimon_bytes
from tests.sim.world import Stored

if TYPE_CHECKING:
    from tests.sim.formats.paimon import PaimonModel

_BAD_OPTIONS = (
    ("snapshot.num-retained.max", "-1"),
    ("snapshot.num-retained.min", "0"),
    ("snapshot.time-retained", "for ever"),
    ("chain-table.enabled", "true"),
    ("metadata.iceberg.storage", "table-location"),
)


class Trouble:
    """One at a time, and each can be undone."""

    def __init__(self, model: PaimonModel) -> None:
        self.model, self.world = model, model.world
        self.taken: dict[str, Stored] = {}
        """What is gone or spoilt, as it was."""
        self.kept_option: tuple[str, str | None] | None = None

    def steps(self) -> list[str]:
        """While there is trouble, only its end and a little else happens."""
        if self.model.frozen and self.model.extras & {"lists", "unlisted"}:
            return ["mend", "stray", "stray"]
        return ["mend", "mend", "stray"] if self.model.frozen else []

    def revivals(self) -> list[str]:
        found = ["bad_option"]
        if self.model.log.snapshots():
            found += ["lose_snapshots", "cut"]
            found += ["lose_snapshots", "lose_list", "lose_list"] if "lists" in self.model.extras else []
            found += ["hide_snapshot"] * 4 if "unlisted" in self.model.extras else []
        noticed = self.model.log.states[""].live and not self.model.lists_seldom
        return [*found, "lose_data"] if noticed else found

    def _bad_option(self) -> None:
        """Somebody sets an option that makes no sense, or that puts the table under other rules."""
        log = self.model.log
        name, value = self.world.random.choice(_BAD_OPTIONS)
        self.kept_option = (name, log.options.get(name))
        log.options[name] = value
        log.write_schema()
        self.model.freeze(f"{name} is {value}", damaged=False)

    def _lose_snapshots(self) -> None:
        """All snapshot files are gone, by accident. The rest is there. If a branch has all that they name, as after a
        fast-forward to it, nothing is lost and nothing shows it: that is no trouble."""
        log = self.model.log
        named = {name for root in log.snapshots() for name in root.whole}
        in_branches = {name for one in log.states if one for root in log.snapshots(one) for name in root.whole}
        hints = {log.at(f"snapshot/{name}") for name in ("LATEST", "EARLIEST")}
        if named <= in_branches and hints.isdisjoint(self.world.objects):
            return
        for root in log.snapshots():
            self._take(root.address)
        self.model.freeze("its snapshots are lost", damaged=True)

    def _cut(self) -> None:
        """A list or manifest of the newest snapshot has lost its end, just where a block of it ends."""
        latest = self.model.log.latest()
        names = sorted(name for name in (latest.whole if latest else ()) if "/manifest/manifest-" in name)
        name = self.world.random.choice(names)
        kind = "list" if "/manifest-list-" in name else "manifest"
        header = paimon_bytes.container(kind, ())
        if self.model.log.written[name].data != header:
            self._take(name)
            self.world.put(name, header, "accident")
            self.model.freeze(f"{name} was cut", damaged=True)

    def _lose_list(self) -> None:
        """A manifest list of the newest snapshot is gone, by accident."""
        latest = self.model.log.latest()
        names = sorted(name for name in (latest.whole if latest else ()) if "/manifest/manifest-list-" in name)
        name = self.world.random.choice(names)
        if self.model.log.written[name].data != paimon_bytes.container("list", ()):
            self._take(name)
            self.world.seen["a manifest list is lost"] += 1
            self.model.freeze(f"{name} is gone", damaged=True)

    def _hide_snapshot(self) -> None:
        """The store does not list the newest snapshot, although it can be read: a cache that is behind."""
        latest = self.model.log.latest()
        if latest is not None:
            self.world.unlisted.add(latest.address)
            self.world.forget(latest.address)
            self.world.seen["a snapshot is not listed"] += 1
            self.model.freeze(f"{latest.address} is not listed", damaged=True)

    def _lose_data(self) -> None:
        """A live file is gone, by accident: the table is damaged, or is not where it should be."""
        live = self.model.log.states[""].live.values()
        name = self.world.random.choice(sorted(name for one in live for name in one.addresses()))
        if any(other.rpartition("/")[2] == name.rpartition("/")[2] for other in self.world.objects if other != name):
            return  # Paimon names files without their places: a copy elsewhere in the table hides that it is gone
        self._take(name)
        self.world.seen["a live file is missing"] += 1
        self.model.freeze(f"{name} is missing", damaged=True)

    def _take(self, address: str) -> None:
        self.taken[address] = self.model.log.written[address]
        self.world.remove(address)

    def _mend(self) -> None:
        log = self.model.log
        for address, stored in self.taken.items():
            log.written[address] = self.world.put(address, stored.data, "operator", stored.modified_at)
        self.taken.clear()
        for address in list(self.world.unlisted):
            self.world.unlisted.remove(address)
            self.world.forget(address)
        if self.kept_option is not None:
            name, value = self.kept_option
            log.options.pop(name, None)
            if value is not None:
                log.options[name] = value
            log.write_schema()
            self.kept_option = None
        self.model.frozen = ""

    def settle(self) -> None:
        if self.model.frozen:
            self._mend()
