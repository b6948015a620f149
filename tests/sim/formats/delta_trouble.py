"""What people and accidents do to a Delta table: while it lasts the product must leave everything alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.formats import delta_bytes
from tests.sim.formats.delta_log import LOG
from tests.sim.world import Stored

if TYPE_CHECKING:
    from tests.sim.formats.delta import DeltaModel

_BAD = (
    ("delta.deletedFileRetentionDuration", "interval 1 month"),
    ("delta.logRetentionDuration", "for ever"),
)


class Trouble:
    """One at a time, and each can be undone."""

    def __init__(self, model: DeltaModel) -> None:
        self.model = model
        self.taken: dict[str, Stored] = {}
        """What is gone, as it was."""
        self.kept: dict[str, str] | None = None
        """The properties, before somebody spoilt them."""

    def steps(self) -> list[str]:
        """While there is trouble, only its end and a little else happens."""
        if self.model.frozen and "backups" in self.model.extras:
            return ["mend", "stray", "stray", "stray"]
        return ["mend", "mend", "stray"] if self.model.frozen else []

    def revivals(self) -> list[str]:
        found = ["bad_property", "unknown_feature"]
        if self._tail():
            found.append("lose_commit")
        if self.model.hinted > self.model.start:
            found.append("set_back")
        if "unlisted" in self.model.extras:
            found.append("hide_commit")
        if "backups" in self.model.extras and self._earlier():
            found += ["set_back_whole"] * 5
        return found

    def _tail(self) -> list[int]:
        """Commits between the newest checkpoint and the newest version."""
        base = max((one.version for one in self.model.log.checkpoints), default=-1)
        return list(range(base + 1, self.model.log.version))

    def _bad_property(self) -> None:
        """A retention that nobody can tell the length of."""
        model = self.model
        name, value = model.world.random.choice(_BAD)
        self.kept = dict(model.log.configuration)
        model.log.configuration[name] = value
        model.commit(more=[{"metaData": model.log.metadata()}], operation="SET TBLPROPERTIES")
        self.model.freeze(f"{name} is {value}", damaged=False)

    def _unknown_feature(self) -> None:
        """A later release writes to it."""
        model = self.model
        model.log.features = (*model.log.features, "featureOfALaterRelease")
        model.commit(more=[{"protocol": delta_bytes.protocol(model.log.features)}])
        self.model.freeze("it has a feature that nobody knows", damaged=False)

    def _lose_commit(self) -> None:
        number = self.model.world.random.choice(self._tail())
        self._take(f"{LOG}{number:020d}.json")
        self.model.freeze(f"its commit {number} is lost", damaged=True)

    def _set_back(self) -> None:
        """Somebody puts the log back to a backup, and forgets `_last_checkpoint`."""
        model = self.model
        last = model.hinted - 1
        for number in range(last + 1, model.log.version + 1):
            self._take(f"{LOG}{number:020d}.json")
        for one in model.log.checkpoints:
            for name in one.files if one.version > last else ():
                self._take(name)
        self.model.freeze(f"its log was set back to version {last}", damaged=True)

    def _set_back_whole(self) -> None:
        """The same, and nothing forgotten: only who has seen a later version can know."""
        model, place = self.model, self.model.place
        last = model.world.random.choice(self._earlier())
        names = [name for name in sorted(place.written) if name.startswith(LOG) and place.has(name)]
        for name in names:
            number = name.removeprefix(LOG)[:20]
            if name == f"{LOG}_last_checkpoint" or (number.isdecimal() and int(number) > last):
                self._take(name)
        model.world.seen["a log was set back, and its hint with it"] += 1
        model.freeze(f"its log was set back to version {last}, and its hint with it", damaged=True)

    def _earlier(self) -> list[int]:
        """Versions before one that a run has seen, from which all that is there can be read."""
        model, seen = self.model, self.model.seen_version
        base = max((one.version for one in model.log.checkpoints if one.version <= model.first), default=model.start)
        return list(range(max(base, model.first), min(seen, model.log.version)))

    def _hide_commit(self) -> None:
        """The store does not list a new commit, although it can be read: a cache that is behind."""
        self.model.commit(added=[self.model.log.data()])
        world, place = self.model.world, self.model.place
        address = f"{place.address}/{LOG}{self.model.log.version:020d}.json"
        world.unlisted.add(address)
        world.forget(address)
        world.seen["a commit is not listed"] += 1
        self.model.freeze("its newest commit is not listed", damaged=True)

    def _restore_backup(self) -> None:
        """Somebody puts the whole log back to a backup: only who has seen a later version can tell."""
        model = self.model
        last = model.log.version - model.world.random.choice((1, 1, 2, 3))
        bases = [one.version for one in model.log.checkpoints if one.version <= last]
        if last < model.start or (model.start and not bases) or model.announced or model.making:
            return
        for number in range(last + 1, model.log.version + 1):
            self._take(f"{LOG}{number:020d}.json")
        for one in model.log.checkpoints:
            for name in one.files if one.version > last else ():
                self._take(name)
        if f"{LOG}_last_checkpoint" in model.place.written:
            self._take(f"{LOG}_last_checkpoint")
        model.world.seen["a log was put back to a backup"] += 1
        self.model.freeze(f"its log was put back to version {last}", damaged=True)

    def _take(self, name: str) -> None:
        place = self.model.place
        if name not in self.taken:
            self.taken[name] = place.written[name]
            place.world.remove(f"{place.address}/{name}")

    def _mend(self) -> None:
        model = self.model
        for name, stored in self.taken.items():
            model.place.put_back(name, stored)
        self.taken.clear()
        for address in list(model.world.unlisted):
            model.world.unlisted.remove(address)
            model.world.forget(address)
        model.frozen = ""
        if self.kept is not None:
            model.log.configuration, self.kept = self.kept, None
            model.commit(more=[{"metaData": model.log.metadata()}], operation="SET TBLPROPERTIES")
        if "featureOfALaterRelease" in model.log.features:
            model.log.features = model.log.features[:-1]
            model.commit(more=[{"protocol": delta_bytes.protocol(model.log.features)}])

    def settle(self) -> None:
        if self.model.frozen:
            self._mend()
