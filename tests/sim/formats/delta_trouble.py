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
        return ["mend", "mend", "stray"] if self.model.frozen else []

    def revivals(self) -> list[str]:
        found = ["bad_property", "unknown_feature"]
        if self._tail():
            found.append("lose_commit")
        if self.model.hinted > self.model.start:
            found.append("set_back")
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
