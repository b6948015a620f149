"""What else happens around an Iceberg table in stories of later seeds: strangers in its places, silent streams, people
who write -1 for never, another table by its name. No product code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from tests.sim.formats.iceberg_bytes import DATA
from tests.sim.formats.iceberg_rules import must_stay, says_never
from tests.sim.formats.iceberg_table import MAIN, MAX_AGE, MAX_REF_AGE, MIN_KEPT, DataFile, Table
from tests.sim.world import Stored

if TYPE_CHECKING:
    from tests.sim.formats.iceberg import IcebergModel

Steps = dict[str, tuple[Callable[[], bool], Callable[[], None], int]]
RARE = (
    *("move to a used place", "another format moves in", "a table of another catalog moves in"),
    *("rename and create anew", "write a negative retention", "a second catalog commits once"),
)
"""As those of the model."""
_RACE_MS = 3_600_000
_LONG_AGO = timedelta(days=90)
_OUTSIDE = "s3://another-tenant/db/t"
_SHARED = "s3://lake/shared"


@dataclass
class Silent:
    """A Kafka Connect sink that has written files, and whose first commit has not come: nothing shows it."""

    files: list[DataFile]
    began: datetime


@dataclass
class Around:
    """Everybody who is around the table of a model."""

    model: IcebergModel
    files: dict[str, dict[str, Stored]] = field(default_factory=dict)
    """Objects of strangers, by who needs them."""
    waiting: list[Silent] = field(default_factory=list)
    shared: dict[str, Stored] = field(default_factory=dict)
    """What tables of another catalog read of ours, as long as gc.enabled is false."""
    fork_of_ours: Table | None = None
    """The table as a second catalog has it that has committed once."""
    kind: str = ""
    """Of the table; by chance if empty."""
    _moved_to: str | None = None

    def steps(self) -> Steps:
        """By name: is it possible, what it does, its weight."""
        return {
            "begin a silent stream": (lambda: not self.waiting, self.begin_silent, 1),
            "write a negative retention": (lambda: not says_never(self._table.current), self.say_never, 1),
            "correct a negative retention": (lambda: says_never(self._table.current), self.correct, 4),
            "stream: commit to a branch": (self._has_branch_job, self.commit_to_branch, 3),
            "move to a used place": (self._may_settle, self.move, 1),
            "a second catalog commits once": (self._may_fork, self.fork, 1),
            "another format moves in": (self._may_settle, self.other_format, 1),
            "a table of another catalog moves in": (self._may_settle, self.unknown_table, 1),
        }

    def revivals(self) -> Steps:
        """The same of what brings back what looked dead."""
        return {
            "a silent stream shows itself": (lambda: bool(self.waiting), self.show, 2),
            "rename and create anew": (self._may_rename, self.rename, 1),
        }

    def readers(self) -> Iterator[tuple[str, Mapping[str, Stored]]]:
        """Those that the table's own models do not know."""
        for who, files in self.files.items():
            if who != _BEFORE_US or self._shows_where_it_was():
                yield who, files
        if self.fork_of_ours is not None and self._is_slow():
            yield from self.fork_of_ours.readers()
        if self.shared:
            yield "a table of another catalog, for which gc.enabled is false", self.shared
        for one in self.waiting:
            if self._is_protected(one):
                yield "a stream that has not committed these yet", {file.path: file.stored for file in one.files}

    # ---- the table itself

    def begin(self) -> None:
        """What kind of table it is, before it is created."""
        rng, table = self.model.world.random, self._table
        kind = self.kind or rng.choice(_KINDS)
        table.logs_history = True
        if kind == "hint":
            table.hint = True
        elif kind == "metadata outside":
            table.properties["write.metadata.path"] = f"{_OUTSIDE}/metadata"
        elif kind == "data outside":
            table.properties["write.data.path"] = _OUTSIDE
            self._put("another tenant", f"{_OUTSIDE}/{self._name()}")
        elif kind == "shared":
            table.properties["write.data.path"] = _SHARED
            names = (f"p=1/{self._name()}", self._name(), f"0101/1100/0011/{self._name()}")
            for name in names:
                self._put("another table that writes below the same data path", f"{_SHARED}/{name}")
        elif kind == "short log":
            table.properties["write.metadata.previous-versions-max"] = "1"
            table.properties["write.metadata.delete-after-commit.enabled"] = "true"
        elif kind == "inhabited":
            self.unknown_table()
            self.model.world.advance(timedelta(hours=rng.choice([3, 100])))

    def goes_on_as_another(self) -> None:
        """The table is dropped: what was promised for it is over."""
        self.waiting, self.shared = [], {}

    def settle(self) -> None:
        """The story ends: nobody waits any more, and what a person has to correct is corrected."""
        self.waiting = []
        if says_never(self._table.current):
            self.correct()

    def tell_unmatched(self) -> None:
        """Where nothing that stays is in the table's own places, a person is asked whether these are right."""
        places = [place for place in (self._table.location, self._table.data_place) if not self.is_outside(place)]
        view, world = self._table.current, self.model.world
        staying = must_stay(view, world.rules, world.ms())
        named = [view.path, *(path for one in staying for path in view.snapshots[one].files)]
        if not any(path.startswith(f"{place}/") for path in named for place in places):
            self.model.reasons.add("nothing_matches")

    def is_outside(self, place: str) -> bool:
        return not place.startswith(self.model.tenant_root)

    def share(self) -> None:
        """gc.enabled is false, since another catalog's table was made from our files."""
        self.shared = {path: stored for one in self._table.snapshots.values() for path, stored in one.files.items()}

    def is_no_place_of_ours(self, place: str) -> bool:
        """May nothing be deleted there, or can nobody tell whose it is?"""
        return self.is_outside(place) or place.startswith(_SHARED)

    # ---- streams

    def begin_silent(self) -> None:
        files = [self._table.write_data() for _ in range(self.model.world.random.randrange(1, 4))]
        self.waiting.append(Silent(files, self.model.world.now))

    def show(self) -> None:
        """Its first commit, of a file of this minute. The others come later. What was deleted before nobody could
        know."""
        objects = self.model.world.objects
        for one in self.waiting:
            one.files = [file for file in one.files if objects.get(file.path) is file.stored]
        table = self._table
        told = {"kafka.connect.offsets.control.0": '{"0":7}'}
        table.add(table.make_snapshot(table.head(), [table.write_data()], summary=told))
        table.commit()
        self.model.world.seen["a stream showed itself that had written before"] += 1

    def _is_protected(self, one: Silent) -> bool:
        rules = self.model.world.rules
        summaries = (snapshot.summary for snapshot in self._table.current.snapshots.values())
        shown = any(name.startswith("kafka.connect.") for summary in summaries for name in summary)
        hours = max(rules.grace, rules.stream_state) if shown else rules.grace
        return self.model.world.now - one.began < timedelta(hours=hours)

    def _has_branch_job(self) -> bool:
        return self.model._has_stream_job() and self.model._has_branch()

    def commit_to_branch(self) -> None:
        """A stream that writes to a branch comes back to it."""
        model, table = self.model, self._table
        names = [name for name, ref in table.refs.items() if ref.kind == "branch" and name != MAIN]
        model.stream_commit(model.world.random.choice(names))

    # ---- people

    def say_never(self) -> None:
        rng, table = self.model.world.random, self._table
        branches = [name for name, ref in table.refs.items() if ref.kind == "branch"]
        if branches and rng.random() < 0.4:
            name, which = rng.choice(branches), rng.choice(["min_kept", "max_age", "max_ref_age"])
            table.refs[name] = replace(table.refs[name], **{which: -1})
        else:
            table.properties[rng.choice([MAX_AGE, MAX_AGE, MIN_KEPT, MAX_REF_AGE])] = "-1"
        table.commit()

    def correct(self) -> None:
        table = self._table
        for name in (MAX_AGE, MIN_KEPT, MAX_REF_AGE):
            if table.properties.get(name) == "-1":
                del table.properties[name]
        for name, ref in table.refs.items():
            wrong = {one: None for one in ("min_kept", "max_age", "max_ref_age") if getattr(ref, one) == -1}
            table.refs[name] = replace(ref, **wrong) if wrong else ref
        table.commit()

    # ---- strangers

    def move(self) -> None:
        """To a place where somebody has had files for long, which no catalog of ours knows."""
        place = f"{self._table.location}-now"
        for _ in range(self.model.world.random.randrange(1, 3)):
            self._put(_BEFORE_US, f"{place}/data/{self._name()}")
        self._moved_to = place
        self.model.move()

    def _shows_where_it_was(self) -> bool:
        """Only as long as its history shows that it has not always been there can anybody know."""
        view, table = self._table.current, self._table
        if not table.metadata_place.startswith(f"{table.location}/"):
            # Its metadata is where it always was. The oldest state that its log has says where the table was then.
            there = [table.views[path] for path, _ in view.log if path in self.model.world.objects]
            return bool(there) and there[0].location != view.location
        lists = [path for one in view.snapshots.values() for path in one.files if "/snap-" in path]
        named = [*lists, *(path for path, _ in view.log)]
        return self._moved_to is not None and any(not path.startswith(f"{self._moved_to}/") for path in named)

    def other_format(self) -> None:
        """Somebody writes a Delta table into the same place. Between two cycles it may take over what lies there, as
        CONVERT TO DELTA does."""
        model, who = self.model, "a Delta table in the same place"
        model.reasons.add("foreign_table")
        place = self._table.location
        if not model.world.cycling and model.world.random.random() < 0.5:
            there = {path: one for path, one in model.world.below(f"{place}/data/") if path.endswith(".parquet")}
            self.files.setdefault(who, {}).update(there)
        self._put(who, f"{place}/_delta_log/00000000000000000000.json", long_ago=False)
        self._put(who, f"{place}/part-00000-{self._name()}", long_ago=False)

    def unknown_table(self) -> None:
        """A table that our catalog does not know, of one commit, where ours is."""
        model = self.model
        model.reasons.add("foreign_table")
        place = model.world.random.choice([self._table.location, f"{self._table.location}/sub"])
        other = Table(model.world, "elsewhere.t", place, 2, who="stranger")
        other.add(other.make_snapshot(None, [other.write_data()]))
        other.create()
        model.others.append(other)

    def _may_fork(self) -> bool:
        return self._may_settle() and not self.model.world.cycling

    def fork(self) -> None:
        """A second catalog registers the table, and commits once. Then nothing happens for some hours."""
        model = self.model
        model.reasons.add("foreign_table")
        theirs = self.fork_of_ours = model.registered_elsewhere()
        theirs.add(theirs.make_snapshot(theirs.head(), [theirs.write_data()]))
        theirs.commit()
        model.world.advance(timedelta(hours=3))

    def _is_slow(self) -> bool:
        """A single commit looks like one that lost a race once the table's log does not reach back to it and the table
        commits more than once an hour, as docs/iceberg.md says."""
        views = (*self._table.views.values(), self._table.current)
        times = sorted(
            {view.at_ms for view in views} | {one.at_ms for view in views for one in view.snapshots.values()}
        )
        return all(later - earlier > _RACE_MS for earlier, later in pairwise(times))

    # ---- another table by our name

    def _may_rename(self) -> bool:
        return self._may_settle() and len(self.model.catalog) < 3 and not self.model.latecomers

    def rename(self) -> None:
        """The table gets another name and goes on, with a file that was dead. Another one takes its name, elsewhere; it
        may begin with files of the old one, as `snapshot` makes them."""
        model, rng = self.model, self.model.world.random
        model.restore()
        model.catch_up()
        old = self._table
        dead = [one for one in model.dropped if model.world.objects.get(one.path) is one.stored]
        live = {one.path for one in old.head().live} if old.head() else set()
        dead = [one for one in dead if one.path not in live]
        old.name = f"db.n{len(model.catalog) + 1}"
        model.catalog[old.name] = old
        if dead:
            old.add(old.make_snapshot(old.head(), [rng.choice(dead)]))
            old.commit()
        model.location = f"{old.location}-v2"
        new = model.table = model.catalog["db.t"] = Table(model.world, "db.t", model.location, old.version)
        ours = [one for one in old.head().live if one.content == DATA] if old.head() and rng.random() < 0.5 else []
        new.create()
        new.add(new.make_snapshot(None, [new.write_data(), *ours]))
        new.commit()
        model.jobs, model.dropped, model.stream = [], [], None
        self.goes_on_as_another()
        model.world.seen["another table came by the same name"] += 1

    # ---- help

    @property
    def _table(self) -> Table:
        return self.model.table

    def _may_settle(self) -> bool:
        return self.model._may_settle() and not self.model.overtaken

    def _name(self) -> str:
        return f"{self.model.world.uuid()}.parquet"

    def _put(self, who: str, path: str, *, long_ago: bool = True) -> None:
        world = self.model.world
        at = world.now - _LONG_AGO if long_ago else None
        self.files.setdefault(who, {})[path] = world.put(path, path.encode(), "stranger", at)


_KINDS = (*(["usual"] * 3), *(["hint", "metadata outside", "data outside", "shared"] * 2), "inhabited")
_BEFORE_US = "somebody who had files where the table was moved to"
