"""Everybody who uses an Iceberg table: writers, jobs, streams, other cleaners, a second catalog, neighbours."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

from tests.sim.formats import Model
from tests.sim.formats import iceberg_bytes as encode
from tests.sim.formats.iceberg_around import RARE, Around
from tests.sim.formats.iceberg_bytes import ADDED, DATA, EQUALITY_DELETES, POSITION_DELETES, Entry
from tests.sim.formats.iceberg_rules import must_stay, ref_stays, stream_needs
from tests.sim.formats.iceberg_table import MAIN, MAX_AGE, MAX_REF_AGE, MIN_KEPT, DataFile, Ref, Snapshot, Table, View
from tests.sim.formats.iceberg_table import Statistics as StatisticsFile
from tests.sim.world import Lost, Stored, World

_HOUR = 3_600_000
_SLACK_MS = 16 * 60_000
"""A process's clock may be wrong by a quarter of an hour without any guard."""
_RARE = ("a second catalog goes on", "drop and create anew", "move", "create a table next door", "set the catalog back")
"""After these a person has to settle something, so that less happens in the rest of the story."""


@functools.cache
def _repeated(name: str, weight: int) -> list[str]:
    """As often as it is to come up."""
    return [name] * (weight if name in _RARE or name in RARE else 4 * weight)


class CommitRejected(Exception):
    """A requirement of a commit does not hold."""


@dataclass
class Job:
    """A writer that has files and has not committed them."""

    files: list[DataFile]
    began: datetime
    stream: str | None = None
    pending: DataFile | None = None
    """A stream's manifest of them."""
    checkpoint: int = 0


class IcebergModel(Model):
    """One table in a REST catalog, and all around it."""

    format: ClassVar[str] = "iceberg"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.table = Table(world, "db.t", self.location, 2)
        self.catalog: dict[str, Table] = {}
        """What the configured catalog has, by name."""
        self.others: list[Table] = []
        """Tables that the configured catalog does not know."""
        self.latecomers: list[Table] = []
        """Those that came in the middle of a cycle: docs/safety.md promises their current snapshot only."""
        self.jobs: list[Job] = []
        self.stream: str | None = None
        self.checkpoint = 0
        self.dropped: list[DataFile] = []
        """Files that were live once."""
        self.overtaken: dict[int, Snapshot] = {}
        """Snapshots that went with an expiry although somebody had just said that they stay: to be restored."""
        self.overtaken_refs: dict[str, Ref] = {}
        self.behind: str | None = None
        """The metadata file that the catalog still names, while it answers with more than is in it."""
        self.reasons: set[str] = set()
        """Codes of refusals that a person has to settle, by what has happened here."""
        self._other_expiries = 0
        self.around = Around(self)
        self.client = False
        """Does the catalog only swap a pointer?"""
        self._steps: dict[str, tuple[Callable[[], bool], Callable[[], None], int]] = {
            "append": (self._always, self.append, 6),
            "append to a branch": (self._has_branch, self.append_to_branch, 2),
            "overwrite": (self._has_files, self.overwrite, 4),
            "delete rows": (self._has_files, self.delete_rows, 3),
            "delete files": (self._has_files, self.delete_files, 2),
            "compact": (self._has_files, self.compact, 3),
            "rewrite manifests": (self._has_files, self.rewrite_manifests, 1),
            "change the schema": (self._always, self.change_schema, 1),
            "change partitions": (self._always, self.change_partitions, 1),
            "change retention": (self._always, self.change_retention, 2),
            "stop garbage collection": (self._collects, self.stop_collection, 1),
            "allow garbage collection": (lambda: not self._collects(), self.allow_collection, 3),
            "tag": (self._has_snapshot, self.tag, 3),
            "branch": (self._has_snapshot, self.branch, 2),
            "change a ref": (self._has_ref, self.change_ref, 1),
            "drop a ref": (self._has_ref, self.drop_ref, 2),
            "roll back": (self._has_snapshot, self.roll_back, 2),
            "stage": (self._has_snapshot, self.stage, 2),
            "publish a staged snapshot": (self._has_staged, self.publish, 2),
            "write statistics": (self._has_snapshot, self.write_statistics, 2),
            "fail to commit": (self._always, self.fail, 3),
            "begin a job": (self._always, self.begin_job, 3),
            "commit a job": (self._has_job, self.commit_job, 4),
            "begin a stream": (lambda: self.stream is None, self.begin_stream, 1),
            "stream: checkpoint": (lambda: self.stream is not None, self.stream_checkpoint, 2),
            "stream: commit": (self._has_stream_job, self.stream_commit, 3),
            "another cleaner expires": (self._has_snapshot, self.other_expiry, 2),
            "create a table next door": (lambda: len(self.catalog) < 3, self.create_neighbour, 1),
            "a neighbour uses our files": (self._may_lend, self.lend, 1),
            "a neighbour commits": (lambda: len(self.catalog) > 1, self.neighbour_commit, 1),
            "a second catalog goes on": (self._may_settle, self.second_catalog, 1),
            "commit a file by another name": (self._always, self.append_by_another_name, 1),
            "the catalog runs ahead": (self._may_run_ahead, self.run_ahead, 1),
            "the catalog's file catches up": (lambda: self.behind is not None, self.catch_up, 2),
            "drop and create anew": (self._may_settle, self.drop_and_create, 1),
            "move": (self._may_settle, self.move, 1),
        }
        self._revivals: dict[str, tuple[Callable[[], bool], Callable[[], None], int]] = {
            "add an old path again": (self._has_dropped, self.add_dropped, 2),
            "set the catalog back": (self._can_go_back, self.set_back, 1),
        }

    # ---- the story's side

    def begin(self) -> None:
        rng = self.world.random
        self.table.version = rng.choice([1, 2, 2, 2, 3])
        if self.client:
            self.table.version = 2  # pyiceberg's own commits are made to these only
        self.table.spec = rng.randrange(2)
        if rng.random() < 0.3:
            self.table.properties["write.metadata.previous-versions-max"] = str(rng.choice([1, 2, 5]))
        if rng.random() < 0.3:
            self.table.properties["write.metadata.delete-after-commit.enabled"] = "true"
        if rng.random() < 0.15:
            self.table.properties["write.data.path"] = "s3://lake/elsewhere/db/t"
        if self.more:
            self.around.begin()
        self.table.create()
        self.catalog["db.t"] = self.table
        for _ in range(rng.randrange(1, 4)):
            self.append()

    def steps(self) -> Sequence[str]:
        return self._possible(self._steps | self.around.steps() if self.more else self._steps)

    def revivals(self) -> Sequence[str]:
        return self._possible(self._revivals | self.around.revivals() if self.more else self._revivals)

    def do(self, name: str) -> None:
        steps, actor = self._steps | self._revivals, "writer"
        if name not in steps:
            steps, actor = self.around.steps() | self.around.revivals(), "others"
        self.world.say(actor, name)
        steps[name][1]()

    def readers(self) -> Iterator[tuple[str, Mapping[str, Stored]]]:
        for table in (*self.catalog.values(), *self.others):
            yield from table.readers()
        for table in self.latecomers:
            yield f"{table.name}: its metadata", {table.current.path: table.current.stored}
            yield f"{table.name}: its current snapshot", table.head().files
        for job in self.jobs:
            if self._is_protected(job):
                files = {one.path: one.stored for one in job.files}
                if job.pending is not None:
                    files[job.pending.path] = job.pending.stored
                yield ("a stream's checkpoint" if job.stream else "an uncommitted job"), files
        yield from self.around.readers()
        for snapshot in self.overtaken.values():
            yield f"db.t: snapshot {snapshot.id}, expired although it was kept in that moment", snapshot.files

    def settle(self) -> None:
        self.catch_up()
        for job in list(self.jobs):
            if job.stream is None and self.world.random.random() < 0.5 and self._is_protected(job):
                self._commit_files(job.files)
            self.jobs.remove(job)
        self.around.settle()
        self.restore()
        if not self._collects():
            self.allow_collection()

    def dead(self) -> set[str]:
        if self.more:
            self.around.tell_unmatched()
        if self.around.is_no_place_of_ours(self.table.metadata_place):
            return set()  # states there that lost a race stay for ever, and so does what they name
        wanted = {path for _, files in self.readers() for path in files}
        places = {place for place in self._places() if not self.around.is_no_place_of_ours(place)}
        found = {path for place in places for path, _ in self.world.below(place) if path not in wanted}
        return {path for path in found if not path.endswith("/version-hint.text")}

    def overdue(self) -> Sequence[object]:
        view = self.table.current
        if self.client and self.around.is_no_place_of_ours(self.table.metadata_place):
            return ()  # whoever commits would have to write there
        stay = must_stay(view, self.world.rules, self.world.ms() - _SLACK_MS)
        return [one for one in view.snapshots if one not in stay]

    @property
    def lasting_reasons(self) -> set[str]:
        """Where a process died around its expiry commit, and another cleaner then expired what a new branch keeps, that
        may have been our own commit: a person has to look."""
        died = self.world.seen["kill before catalog.commit"] or self.world.seen["kill after catalog.commit"]
        found = self.reasons | {"ref_unverified"} if died and self._other_expiries else self.reasons
        return found | {"missing_live_files"} if self._looks_damaged() else found

    def _looks_damaged(self) -> bool:
        """Does a snapshot that stays name a file of another place by an address that nobody here knows? The table was
        moved, or began with files of another one. Nothing tells what that address means, so the file looks missing."""
        view, places = self.table.current, tuple(self._places())
        staying = set(must_stay(view, self.world.rules, self.world.ms()))
        if self.around.is_outside(self.table.metadata_place):
            staying = set(view.snapshots)  # an expiry would write there, so there is none
        return any(
            one.spelled not in (None, one.path) and not one.path.startswith(places)
            for snapshot_id in staying
            for one in view.snapshots[snapshot_id].live
        )

    def _places(self) -> set[str]:
        """The table's own."""
        table = self.table
        if table.location.endswith("-now"):
            # A place outside the location is the table's own only while its path has the table's name.
            return {f"{table.location}/"}
        return {f"{table.location}/", f"{table.data_place}/", f"{table.metadata_place}/"}

    def restore(self) -> None:
        """An operator reads the refusal and puts back what went by mistake."""
        if self.overtaken:
            self.table.snapshots |= self.overtaken
            for name, ref in self.overtaken_refs.items():
                self.table.refs.setdefault(name, ref)
            self.overtaken, self.overtaken_refs = {}, {}
            self.table.commit()

    # ---- the catalog's side

    def check_snapshot_log(self, table: Table, log: Sequence[tuple[int, int]]) -> None:
        """What a commit of the product would write: does time travel by date find what was current then?"""
        with self.world.judging():
            if log and tuple(log) != table.history[-len(log) :]:
                raise Lost("the snapshot log has a gap: time travel finds a snapshot that was not current then")
        if log:
            self.world.seen["the product wrote a snapshot log"] += 1

    def lose_race(self, table: Table, base: View, process: str) -> None:
        """A metadata file was written, and the pointer could not be swapped: it stays behind."""
        path = f"{table.metadata_place}/{table.commits:05d}-{self.world.uuid()}.metadata.json"
        self.world.put(path, base.stored.data, process)
        self.world.seen["a metadata file whose commit lost the race"] += 1

    def expire(
        self, name: str, base: str, demands: Mapping[str, int], uuid: str | None, changes: Mapping[str, Any]
    ) -> None:
        """The product's commit, as a REST server applies it. `base` is the metadata that it was planned with."""
        table = self.catalog[name]
        self.catch_up()
        if uuid is not None and uuid != table.uuid:
            raise CommitRejected("the table has another uuid")
        for ref_name, snapshot_id in demands.items():
            if ref_name not in table.refs or table.refs[ref_name].snapshot_id != snapshot_id:
                raise CommitRejected(f"{ref_name} points elsewhere")
        with self.world.judging():
            self._judge(table, base, changes)
        for ref_name in changes["refs"]:
            table.refs.pop(ref_name, None)
        table.statistics = [one for one in table.statistics if one.snapshot_id not in changes["statistics"]]
        table.forget(changes["snapshots"])
        table.who = "catalog"
        table.commit()
        table.who = "writer"

    def _judge(self, table: Table, base: str, changes: Mapping[str, Any]) -> None:
        now_ms = self.world.ms() + _SLACK_MS
        planned, now = table.views[base], table.current
        for snapshot_id in changes["snapshots"]:
            if why := must_stay(planned, self.world.rules, now_ms).get(snapshot_id):
                raise Lost(f"snapshot {snapshot_id} was expired although {why}")
            if snapshot_id in now.snapshots and snapshot_id in must_stay(now, self.world.rules, now_ms):
                self.world.seen["an expiry overtaken by a change of retention or refs"] += 1
                self.overtaken[snapshot_id] = now.snapshots[snapshot_id]
                self.overtaken_refs |= {n: ref for n, ref in now.refs.items() if ref.snapshot_id == snapshot_id}
        for name in changes["refs"]:
            ref = planned.refs.get(name)
            if ref is not None and ref_stays(name, ref, planned, now_ms):
                raise Lost(f"ref {name} was dropped although its retention has not ended")
            if stream_needs(name, planned, self.world.rules, now_ms):
                raise Lost(f"ref {name} was dropped although a stream may come back to it")

    # ---- what is possible

    def _possible(self, steps: Mapping[str, tuple[Callable[[], bool], Callable[[], None], int]]) -> list[str]:
        found: list[str] = []
        for name, (possible, _, weight) in steps.items():
            if possible():
                found += _repeated(name, weight)
        return found

    def _always(self) -> bool:
        return True

    def _has_snapshot(self) -> bool:
        return bool(self.table.snapshots)

    def _has_files(self) -> bool:
        head = self.table.head()
        return head is not None and bool(head.live)

    def _has_branch(self) -> bool:
        return any(ref.kind == "branch" and name != MAIN for name, ref in self.table.refs.items())

    def _has_ref(self) -> bool:
        return len(self.table.refs) > 1

    def _has_staged(self) -> bool:
        return bool(self._staged())

    def _has_job(self) -> bool:
        return any(job.stream is None for job in self.jobs)

    def _has_stream_job(self) -> bool:
        return any(job.stream is not None for job in self.jobs)

    def _has_dropped(self) -> bool:
        return any(self.world.objects.get(one.path) is one.stored for one in self.dropped)

    def _collects(self) -> bool:
        return self.table.properties.get("gc.enabled", "true") == "true"

    def _may_settle(self) -> bool:
        """Things that a person has to settle happen once in a story, and in few."""
        return not self.reasons and not self.table.lazy

    def _can_go_back(self) -> bool:
        view = self._view_before()
        return (
            view is not None
            and not self.reasons
            and all(
                self.world.objects.get(path) is stored
                for snapshot in view.snapshots.values()
                for path, stored in snapshot.files.items()
            )
        )

    def _view_before(self) -> View | None:
        return self.view_before(self.table)

    def view_before(self, table: Table) -> View | None:
        """What was current before the newest commit, if its metadata file is there."""
        path = table.current.log[-1][0] if table.current.log else None
        return table.views.get(path) if path in self.world.objects else None

    def _is_protected(self, job: Job) -> bool:
        hours = self.world.rules.grace
        if job.stream is not None:
            hours = max(hours, self.world.rules.stream_state)
        return self.world.now - job.began < timedelta(hours=hours)

    def _staged(self) -> list[int]:
        table = self.table
        on_refs = {one.id for ref in table.refs.values() for one in table.ancestors(ref.snapshot_id)}
        return [one for one in table.snapshots if one not in on_refs]

    # ---- writers

    def _some_files(self, most: int = 3) -> list[DataFile]:
        return [self.table.write_data() for _ in range(self.world.random.randrange(1, most + 1))]

    def _commit_files(self, files: Sequence[DataFile], branch: str = MAIN, **summary: str) -> None:
        table = self.table
        merge = self.world.random.random() < 0.2
        told = {name.replace("_", "."): value for name, value in summary.items()}
        table.add(table.make_snapshot(table.head(branch), files, summary=told, merge=merge), branch)
        table.commit()

    def _replace(self, removed: Sequence[DataFile], added: Sequence[DataFile], operation: str) -> None:
        table = self.table
        table.add(table.make_snapshot(table.head(), added, removed, operation=operation))
        self.dropped += [one for one in removed if one.content == DATA]
        table.commit()

    def _pick(self, share: float) -> list[DataFile]:
        live = [one for one in self.table.head().live if one.content == DATA]
        return [one for one in live if self.world.random.random() < share] or live[:1]

    def append(self) -> None:
        self._commit_files(self._some_files())

    def append_to_branch(self) -> None:
        names = [name for name, ref in self.table.refs.items() if ref.kind == "branch" and name != MAIN]
        self._commit_files(self._some_files(), self.world.random.choice(names))

    def overwrite(self) -> None:
        self._replace(self._pick(0.6), self._some_files(), "overwrite")

    def delete_files(self) -> None:
        self._replace(self._pick(0.3), [], "delete")

    def compact(self) -> None:
        self._replace(list(self.table.head().live), [self.table.write_data()], "replace")

    def delete_rows(self) -> None:
        rng, table = self.world.random, self.table
        if table.version == 1:
            self._replace(self._pick(0.3), self._some_files(1), "overwrite")
        elif table.version == 3:
            old = [one for one in table.head().live if one.path.endswith(".puffin")]
            self._replace(old, [table.write_data(POSITION_DELETES, "-deletes.puffin")], "overwrite")
        else:
            content = rng.choice([POSITION_DELETES, EQUALITY_DELETES])
            self._replace([], [table.write_data(content)], "overwrite")

    def rewrite_manifests(self) -> None:
        table = self.table
        table.add(table.make_snapshot(table.head(), operation="replace", merge=True))
        table.commit()

    def change_schema(self) -> None:
        self.table.schema += 1
        self.table.commit()

    def change_partitions(self) -> None:
        self.table.spec += 1
        self.table.commit()

    def change_retention(self) -> None:
        rng, properties = self.world.random, self.table.properties
        name, value = rng.choice(
            [
                (MAX_AGE, str(int(rng.choice([1, 30, 100, 1000]) * _HOUR))),
                (MIN_KEPT, str(rng.choice([1, 2, 5, 100]))),
                (MAX_REF_AGE, str(int(rng.choice([10, 100, 1000]) * _HOUR))),
            ]
        )
        if properties.pop(name, None) is None or rng.random() < 0.5:
            properties[name] = value
        self.table.commit()

    def stop_collection(self) -> None:
        self.table.properties["gc.enabled"] = "false"
        self.table.commit()
        if self.more:
            self.around.share()

    def allow_collection(self) -> None:
        self.table.properties.pop("gc.enabled", None)
        self.table.commit()
        self.around.shared = {}

    def _retention(self) -> dict[str, int]:
        rng = self.world.random
        found = {"max_ref_age": rng.choice([1, 50, 500]) * _HOUR} if rng.random() < 0.4 else {}
        return found | ({"min_kept": rng.choice([1, 3])} if rng.random() < 0.2 else {})

    def tag(self) -> None:
        one = self.world.random.choice(list(self.table.snapshots))
        self.table.refs[f"tag-{self.world.uuid()[:6]}"] = Ref(
            "tag", one, max_ref_age=self._retention().get("max_ref_age")
        )
        self.table.commit()

    def branch(self) -> None:
        one = self.world.random.choice(list(self.table.snapshots))
        self.table.refs[f"branch-{self.world.uuid()[:6]}"] = Ref("branch", one, **self._retention())
        self.table.commit()

    def _some_ref(self) -> str:
        return self.world.random.choice([name for name in self.table.refs if name != MAIN])

    def change_ref(self) -> None:
        name = self._some_ref()
        ages = self._retention()
        if self.table.refs[name].kind == "tag":
            ages.pop("min_kept", None)
        self.table.refs[name] = replace(self.table.refs[name], **ages)
        self.table.commit()

    def drop_ref(self) -> None:
        del self.table.refs[self._some_ref()]
        self.table.commit()

    def roll_back(self) -> None:
        line = list(self.table.ancestors(self.table.refs[MAIN].snapshot_id)) if MAIN in self.table.refs else []
        if line:
            self.table.refs[MAIN] = replace(self.table.refs[MAIN], snapshot_id=self.world.random.choice(line).id)
            self.table.commit()

    def stage(self) -> None:
        self.table.add(self.table.make_snapshot(self.table.head(), self._some_files()), None)
        self.table.commit()

    def publish(self) -> None:
        """Cherry-pick, or make it current as it is."""
        rng, table = self.world.random, self.table
        one = table.snapshots[rng.choice(self._staged())]
        if rng.random() < 0.5:
            fresh = [f for m in one.manifests if m.snapshot_id == one.id for s, f in m.entries if s == ADDED]
            live = {f.path for f in table.head().live} if table.head() else set()
            wanted = [f for f in fresh if f.path not in live]
            table.add(table.make_snapshot(table.head(), wanted, summary={"source-snapshot-id": str(one.id)}))
        else:
            table.add(one)
        table.commit()

    def write_statistics(self) -> None:
        rng, table = self.world.random, self.table
        one, partitions = rng.choice(list(table.snapshots)), rng.random() < 0.5
        name = f"partition-stats-{one}-{self.world.uuid()}.parquet" if partitions else f"{self.world.uuid()}.stats"
        path = f"{table.metadata_place}/{name}"
        stored = self.world.put(path, name.encode(), "writer")
        table.statistics = [s for s in table.statistics if (s.snapshot_id, s.of_partitions) != (one, partitions)]
        table.statistics.append(StatisticsFile(one, path, stored, partitions))
        table.commit()

    # ---- jobs and streams

    def fail(self) -> None:
        """A job that dies: files of every kind that nobody will ever name."""
        rng, table = self.world.random, self.table
        self._some_files()
        if rng.random() < 0.5:
            table.make_snapshot(table.head(), self._some_files(1))

    def begin_job(self) -> None:
        self.jobs.append(Job(self._some_files(), self.world.now))

    def commit_job(self) -> None:
        job = self.world.random.choice([one for one in self.jobs if one.stream is None])
        self.jobs.remove(job)
        if self._is_protected(job):
            self._commit_files(job.files)

    def begin_stream(self) -> None:
        self.stream = self.world.uuid().replace("-", "")
        self.stream_checkpoint()

    def stream_checkpoint(self) -> None:
        """Files, and a manifest of them, which only the stream's state knows."""
        files = self._some_files(2)
        self.checkpoint += 1
        path = f"{self.table.location}/metadata/{self.stream}-op-0-0-{self.checkpoint}-0.avro"
        rows = [Entry(ADDED, 0, 0, DATA, one.path, len(one.stored.data)) for one in files]
        stored = self.world.put(path, encode.manifest(self.table.version, False, rows), "stream")
        self.jobs.append(Job(files, self.world.now, self.stream, DataFile(path, DATA, stored), self.checkpoint))

    def stream_commit(self, branch: str = MAIN) -> None:
        """It comes back, perhaps after days, and commits what its state knows."""
        job = next(one for one in self.jobs if one.stream is not None)
        self.jobs.remove(job)
        if self._is_protected(job):
            told = {"flink.job-id": job.stream, "flink.operator-id": "op"}
            told["flink.max-committed-checkpoint-id"] = str(job.checkpoint)
            table = self.table
            table.add(table.make_snapshot(table.head(branch), job.files, summary=told), branch)
            table.commit()
        self.world.remove(job.pending.path)

    # ---- others

    def other_expiry(self) -> None:
        """Another cleaner: expires what it likes of what no ref points at, and deletes the files, or some of them."""
        rng, table = self.world.random, self.table
        heads = {ref.snapshot_id for ref in table.refs.values()}
        going = [one for one in table.snapshots if one not in heads and rng.random() < 0.6]
        if not going:
            return
        self._other_expiries += 1
        freed = {path for one in going for path in table.snapshots[one].files}
        freed |= {one.path for one in table.statistics if one.snapshot_id in going}
        table.forget(going)
        table.commit()
        if rng.random() < 0.8:
            wanted = {path for _, files in self.readers() for path in files}
            for path in sorted(freed - wanted):
                if rng.random() < 0.9:
                    self.world.remove(path)

    def create_neighbour(self) -> None:
        rng = self.world.random
        number = len(self.catalog) + 1
        place = rng.choice(["s3://lake/wh/db/t2", "s3://lake/wh/db/t-old", "s3://lake/wh/db2/t", "inside"])
        if place == "inside":
            if self.reasons:
                return
            self.reasons.add("overlap")
            self.reasons.add("foreign_table")
            place = f"{self.table.location}/inner"
        other = Table(self.world, f"db.n{number}", f"{place}{number}", 2, who="neighbour")
        other.create()
        self.catalog[other.name] = other
        other.add(other.make_snapshot(None, [other.write_data()]))
        other.commit()

    def neighbour_commit(self) -> None:
        other = self.world.random.choice([one for one in self.catalog.values() if one is not self.table])
        other.add(other.make_snapshot(other.head(), [other.write_data()]))
        other.commit()

    def append_by_another_name(self) -> None:
        """A writer that reaches the same store by another address, and writes that one into the table."""
        one = self.table.write_data()
        self._commit_files([replace(one, spelled=one.path.replace("s3://lake/", "s3://lake-by-another-name/"))])
        self.world.seen["a file is named by an address that nobody here knows"] += 1

    def _may_run_ahead(self) -> bool:
        return self.behind is None and not self.reasons and not self.client and self._has_snapshot()

    def run_ahead(self) -> None:
        """A server that answers with a commit which it has not written into a metadata file yet."""
        path = self.table.current.path
        self.append()
        if path in self.world.objects:
            self.behind = path
            if self.more:
                self.table.keep_back()
            self.world.seen["the catalog answers with more than its metadata file has"] += 1

    def catch_up(self) -> None:
        self.behind = None
        self.table.write_down()

    def pointed_at(self, table: Table) -> str:
        """The metadata file that the catalog names."""
        late = self.behind if table is self.table and self.behind in self.world.objects else None
        return late or table.current.path

    def _may_lend(self) -> bool:
        return len(self.catalog) > 1 and self._has_files()

    def lend(self) -> None:
        """Another table of the catalog takes over some of our files, where they are: add_files does that."""
        other = self.world.random.choice([one for one in self.catalog.values() if one is not self.table])
        live = {one.path for one in other.head().live} if other.head() else set()
        ours = [one for one in self.table.head().live if one.content == DATA and one.path not in live]
        if not self.world.planned:  # later nobody looks whether another table has come to use what is dead here
            there = [one for one in self.dropped if self.world.objects.get(one.path) is one.stored]
            ours = [one for one in there if one.path not in live] or ours
        if ours:
            other.add(other.make_snapshot(other.head(), [self.world.random.choice(ours)]))
            other.commit()

    def second_catalog(self) -> None:
        """Another catalog registers the table as it is now, and commits to it twice: a single commit could be one that
        lost a race, as docs/iceberg.md says."""
        self.reasons.add("foreign_table")
        theirs = self.registered_elsewhere()
        for _ in range(2):
            theirs.add(theirs.make_snapshot(theirs.head(), [theirs.write_data()]))
            theirs.commit()
        (self.latecomers if self.world.cycling else self.others).append(theirs)

    def registered_elsewhere(self) -> Table:
        """The table as it is now, in another catalog."""
        ours = self.table
        theirs = replace(ours, who="second", name="second.t", views=dict(ours.views), removed=ours.removed)
        theirs.properties, theirs.snapshots = dict(ours.properties), dict(ours.snapshots)
        theirs.refs, theirs.statistics = dict(ours.refs), list(ours.statistics)
        theirs.hint, theirs.hinted = False, None
        theirs.properties.pop("write.metadata.delete-after-commit.enabled", None)  # it would take ours away
        return theirs

    def drop_and_create(self) -> None:
        """The old table's files stay behind, or are purged."""
        self.catch_up()
        rng, old = self.world.random, self.table
        if rng.random() < 0.4:
            lent = {
                path for one in self.catalog.values() if one is not old for _, files in one.readers() for path in files
            }
            for path in [path for path, _ in self.world.below(old.location + "/") if path not in lent]:
                self.world.vacuumed.add(path)
                self.world.remove(path)
        else:
            self.reasons.add("foreign_table")
        self.table = Table(self.world, "db.t", old.location, old.version)
        self.table.create()
        self.catalog["db.t"] = self.table
        self.jobs, self.dropped, self.stream, self.overtaken, self.overtaken_refs = [], [], None, {}, {}
        self.around.goes_on_as_another()
        self.append()

    def move(self) -> None:
        """New files go elsewhere; the old ones stay where they are, and live."""
        self.reasons |= {"ceiling_new_place", "foreign_table"}
        self.location = self.table.location = f"{self.table.location}-now"
        self.table.commit()

    # ---- what nothing refers to comes back

    def add_dropped(self) -> None:
        found = [one for one in self.dropped if self.world.objects.get(one.path) is one.stored]
        one = self.world.random.choice(found)
        head = self.table.head()
        if head is None or one.path not in {f.path for f in head.live}:
            self._commit_files([one])

    def set_back(self) -> None:
        self.reasons.add("foreign_table")
        self.table.go_back_to(self._view_before())
        self.around.shared = {}
