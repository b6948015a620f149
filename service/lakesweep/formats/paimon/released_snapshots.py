"""The snapshots and changelogs that one handle has let go, until their files are gone and after that."""

from __future__ import annotations

from collections.abc import Iterable

from lakesweep.formats.paimon.reader import Log
from lakesweep.formats.paimon.snapshots import PaimonSnapshot, Role
from lakesweep.formats.paimon.state import PaimonState
from lakesweep.model.errors import Indeterminate


class GivenUp:
    """Standing while its file is there, closed once it is gone: from then on nobody can open it any more."""

    def __init__(self) -> None:
        self._by_key: dict[str, PaimonSnapshot] = {}
        self._back: set[str] = set()
        self._history: dict[int, str] = {}
        """The key of every snapshot that stood when some were let go."""

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(self._by_key)

    @property
    def names(self) -> frozenset[str]:
        """Of their files: that these go changes nothing for anybody."""
        return frozenset(one.location.name for one in self._by_key.values())

    @property
    def roles(self) -> list[Role]:
        """Whether there are snapshots, changelogs or both."""
        return sorted({one.role for one in self._by_key.values()})

    def add(self, snapshots: Iterable[PaimonSnapshot], log: Log) -> None:
        self._by_key |= {snapshot.key: snapshot for snapshot in snapshots}
        self._history |= {one.id: one.key for one in log.snapshots}

    def keep_if_rolled_back(self, log: Log) -> None:
        """An id that is another snapshot's now proves a rollback. One of those that were to go was the newest for a
        while, however short: who reads it then began to read it a moment ago. So all that stand are kept."""
        if any(self._history.get(one.id, one.key) != one.key for one in log.snapshots):
            for key in [one.key for one in (*log.snapshots, *log.changelogs) if one.key in self._by_key]:
                del self._by_key[key]
                self._back.add(key)

    def take_back(self, stored: Iterable[tuple[Role, str]]) -> list[PaimonSnapshot]:
        """Those whose files are still stored: who opens one must find all of it."""
        there = set(stored)
        back = [one for one in self._by_key.values() if (one.role, one.location.name) in there]
        for one in back:
            del self._by_key[one.key]
        self._back.update(one.key for one in back)
        return back

    def still_going(self, snapshots: Iterable[PaimonSnapshot]) -> list[PaimonSnapshot]:
        """Without those that were taken back."""
        return [one for one in snapshots if one.key not in self._back]

    def closed(self, log: Log) -> list[PaimonSnapshot]:
        """Those whose files are gone, by id."""
        standing = {one.key for one in (*log.snapshots, *log.changelogs)}
        gone = [one for key, one in self._by_key.items() if key not in standing]
        return sorted(gone, key=lambda one: one.id)

    def check_not_needed(self, state: PaimonState) -> None:
        """A closed snapshot cannot come back, so what it named must stay until a person has looked."""
        lasting = {one.id for one in state.log.changelogs}
        for one in self.closed(state.log):
            if one.role is Role.SNAPSHOT and one.id in lasting:
                continue  # its changelog is there to be read
            readers = state.readers_of(one)
            if readers:
                raise Indeterminate(
                    f"{one.label} was expired by this run, and since then consumer {readers[0]} wants to read it: "
                    "nothing more was deleted; let the consumer start from a snapshot that exists"
                )

    def snapshot(self, snapshot_id: int | None) -> PaimonSnapshot | None:
        found = (one for one in self._by_key.values() if one.role is Role.SNAPSHOT and one.id == snapshot_id)
        return next(found, None)
