"""Everybody who uses one Delta table: its writers, other cleaners, readers of each version, clones. No product code.

What stays, by Delta's own rules and by what the product promises on top of them:
- the newest version, and every version whose commit is younger than the log's retention (from midnight UTC), as far as
  their files were not removed longer ago than `delta.deletedFileRetentionDuration` (at least a day);
- all that such versions are rebuilt from: the newest complete checkpoint before each, and the commits behind it;
- files of a job that has not committed yet, and change data, for the longest of the three waits;
- what a commit names that counts although the log does not have it yet; files that a shallow clone reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import quote

from tests.sim.formats.delta_log import LOG, Added, Checkpoint, DeltaLog, Making
from tests.sim.formats.delta_more import More
from tests.sim.formats.delta_others import Others
from tests.sim.formats.delta_trouble import Trouble
from tests.sim.formats.place import Place
from tests.sim.formats.watching import WatchingModel
from tests.sim.world import Lost, Stored, World

HOUR = 3_600_000
DAY = 24 * HOUR
OLD_KINDS, NEW_KINDS = ("classic", "multipart"), ("classic", "v2-json", "v2-parquet")
_HIDDEN = "_hidden"
"""A partition column whose directories have names that are hidden otherwise."""
_ODD = ("k=a b/", "k=%C3%BC%3A/", "k=ü/", "k=#1/", "deep/er/", "k=100%25/", "")


@dataclass(slots=True, kw_only=True)
class Job:
    """Files that a writer holds and has not committed."""

    files: list[Added]
    optimize: bool


class DeltaModel(WatchingModel):
    """The table at `location`. `free` are names below it that may go: once there, always there."""

    format = "delta"
    commits = frozenset({"restore_far", "commit_late_job", "replace_commit"})

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.place = Place(world, self.location, "writer")
        self.others = Others(self)
        self.extra = More(self)
        self.trouble = Trouble(self)
        self.reasons: set[str] = set()
        self.lite = False
        self.seen_version = self._begun_at = -1
        """The newest version that a run has certainly seen, and the one that the newest cycle began with."""

    def cycle_begins(self) -> None:
        super().cycle_begins()
        self._begun_at = -1 if self.frozen else self.log.version

    def cycle_ended(self, outcome: str) -> None:
        if outcome == "done":
            self.seen_version = max(self.seen_version, self._begun_at)

    # ---- the beginning

    def places(self) -> Mapping[str, str]:
        return {"location": self.location.rpartition("/")[0]}

    def settings(self) -> Mapping[str, str | bool]:
        return {"vacuum_mode": "lite" if self.lite else "full", "has_shallow_clones": "far clones" in self.extras}

    def create(self) -> None:
        """A new table, where there is none."""
        chance = self.world.random
        self.extra.forget()
        self.seen_version = self._begun_at = -1
        self.lite = chance.random() < 0.15 or "lite" in self.extras
        self.streaming = chance.random() < 0.4
        self.kinds = NEW_KINDS if chance.random() < 0.5 else OLD_KINDS
        self.free: set[str] = set()
        self.changes: dict[str, int] = {}
        """Files of change data, and the version that wrote each."""
        self.jobs: list[Job] = []
        self.foreign: set[str] = set()
        self.making: Making | None = None
        """A checkpoint whose sidecar is written and whose own file is not."""
        self.announced: Added | None = None
        """What a commit adds that counts and is not in the log yet."""
        self.hinted = -1
        """The version that `_last_checkpoint` names."""
        self.start = self.first = 0
        """The version that the log begins with, and the oldest that readers may still ask for."""
        features = ["deletionVectors"]
        if self.kinds is NEW_KINDS:
            features.append("v2Checkpoint")
        if chance.random() < 0.2 or ("odd clocks" in self.extras and chance.random() < 0.5):
            features.append("inCommitTimestamp")
        self.log = DeltaLog(place=self.place, configuration={}, features=tuple(features))
        if "inCommitTimestamp" in features:
            self.log.configuration["delta.enableInCommitTimestamps"] = "true"
        self._draw_retention()
        self.log.create()

    def _draw_retention(self) -> None:
        chance = self.world.random
        files, log = chance.choice((0, 1, 1, 6, 24, 48, 96, 168)), chance.choice((24, 48, 72, 120, 168, 240))
        if "short retentions" in self.extras:
            files = files % 24
        if "long logs" in self.extras:
            files, log = min(files, 48), 720
        if "short logs" not in self.extras:
            log = max(log, files)
        elif self.extras & {"scans"}:
            files, log = 72, 24
        else:
            log = 24
        self.files_ms, self.log_ms = files * HOUR, log * HOUR
        spelled = chance.choice(("interval {} hours", "{} hours", "INTERVAL {} HOURS", "interval {} hour 0 seconds"))
        self.log.configuration["delta.deletedFileRetentionDuration"] = spelled.format(files)
        self.log.configuration["delta.logRetentionDuration"] = spelled.format(log)

    # ---- what may happen

    def steps(self) -> Sequence[str]:
        found = ["append"] * 4 + ["checkpoint"] * 3 + ["begin_job", "stray", "nothing"]
        found += ["compact_log", "checksum", "set_retention", "lost_checkpoint", "foreign", "begin_checkpoint"]
        if self.streaming:
            found += ["stream", "stream"]
        if self.making is not None:
            found += ["finish_checkpoint", "finish_checkpoint"]
        if self.log.live:
            found += ["misspelled"]
            found += ["overwrite", "delete_rows", "delete_rows", "update", "optimize", "optimize", "remove", "remove"]
        if self.jobs:
            found += ["commit_job", "commit_job", "give_up_job"]
        found.append("publish" if self.announced else "announce")
        if self.log.version > 0:
            found += ["restore", "restore", "set_log_cleanup"]
        if "alterations" in self.extras:
            found += ["change_schema", "change_partitions"]
        return self.trouble.steps() or found + self.others.steps() + self.extra.steps()

    def revivals(self) -> Sequence[str]:
        return () if self.frozen else self.trouble.revivals() + self.extra.revivals()

    def do(self, name: str) -> None:
        self.age()
        actors = (("accident", self.trouble), ("others", self.others), ("writer", self.extra), ("writer", self))
        for actor, who in actors:
            if act := getattr(who, f"_{name}", None):
                self.world.say(actor, name)
                act()
                break
        self.changed()

    def commit(self, **what: object) -> None:
        """A commit that counts already comes first: whoever wants to write brings it into the log."""
        self._publish()
        if "odd clocks" in self.extras:
            what["late_ms"] = self.world.random.choice((0, 0, 2 * HOUR, 30 * HOUR))
        self.log.commit(**what)  # type: ignore[arg-type]

    def pick(self) -> Added:
        """A file of the newest version, often the oldest one: the younger ones wait for their age anyway."""
        live = list(self.log.live.values())
        return live[0] if self.world.random.random() < 0.5 else self.world.random.choice(live)

    def _data(self) -> Added:
        if not self._rarely():
            return self.log.data()
        if self._rarely():
            return self.log.data(ending="")  # as Trino names them
        return self.log.data(directory=self.world.random.choice(_ODD))

    def _rarely(self) -> bool:
        return self.world.random.random() < 0.25

    def _append(self) -> None:
        added = [self._data() for _ in range(self.world.random.randint(1, 3))]
        if self._rarely():
            path = added[0].path
            # By the same address, by that of another client, and by the name that a mount gives to the same place.
            root = self.world.random.choice((self.place.address, "s3a://lake/wh/db/t", "dbfs:/mnt/lake/wh/db/t"))
            added[0] = Added(spelled=f"{root}/{quote(path or '')}", path=path)
        self.commit(added=added, late_ms=self._behind())

    def _behind(self) -> int:
        """A store's clock goes back now and then: a commit looks older than the one before it."""
        return self.world.random.choice((0, 0, 0, 0, 0, 0, 2 * HOUR, 30 * HOUR))

    def _misspelled(self) -> None:
        """To readers it is another file that is removed here: the one that was meant stays."""
        known = self.pick()
        first = known.spelled[0]
        other = Added(spelled=f"%{ord(first):02X}{known.spelled[1:]}", path=None, vector=known.vector)
        self.commit(more=[{"remove": other.removal(self.place.ms())}])

    def _foreign(self) -> None:
        """Somebody keeps files of another kind in the table's directory."""
        name = self.world.random.choice(("notes.txt", "_tmp/x.parquet", ".hidden/y.parquet", "_delta_index/z.parquet"))
        self.place.put(name, b"not a file of the table")
        self.foreign.add(name)

    def _remove(self) -> None:
        chance = self.world.random
        # A writer's clock may be behind the store's; deltalake once wrote removes without their time.
        behind = chance.choice((0, 0, HOUR, 20 * 60_000))
        self.commit(removed=[self.pick()], removed_ms=self.place.ms() - behind, dated=chance.random() > 0.2)

    def _overwrite(self) -> None:
        self.commit(added=[self._data()], removed=list(self.log.live.values()))

    def _optimize(self) -> None:
        some = list(self.log.live.values())[: self.world.random.randint(1, 4)]
        self.commit(added=[self.log.data()], removed=some, operation="OPTIMIZE")

    def _delete_rows(self) -> None:
        """Some rows of some files, by vectors in one new file."""
        some = [one for one in self.log.live.values() if one.path][:2]
        vector = self.log.vector()
        added = [
            Added(spelled=one.spelled, path=one.path, vector=type(vector)(file=vector.file, text=vector.text, offset=n))
            for n, one in enumerate(some, start=1)
        ]
        self.commit(added=added, removed=some, operation="DELETE")

    def _update(self) -> None:
        """A file written anew, and the change beside it."""
        name = self.place.put(f"_change_data/cdc-{self.place.uuid()}.parquet", b"changes")
        cdc = {"cdc": {"path": name, "partitionValues": {}, "size": 7, "dataChange": False}}
        self.commit(added=[self.log.data()], removed=[self.pick()], more=[cdc], operation="UPDATE")
        self.changes[name] = self.log.version

    def _nothing(self) -> None:
        self.commit()

    def _stream(self) -> None:
        name = self.world.random.choice(("a", "b"))
        number = self.log.transactions[name] = self.log.transactions.get(name, 0) + 1
        txn = {"txn": {"appId": name, "version": number, "lastUpdated": self.place.ms()}}
        self.commit(added=[self.log.data()], more=[txn], operation="STREAMING UPDATE")

    def _restore(self) -> None:
        """Only what Delta allows: every file of the version is there, and none was removed too long ago."""
        able = [number for number in range(self.first, self.log.version) if self.restorable(number)]
        if able:
            wanted = {one.key: one for one in self.log.versions[self.world.random.choice(able)].live}
            self._publish()
            live = self.log.live
            self.commit(
                added=[one for key, one in wanted.items() if key not in live],
                removed=[one for key, one in live.items() if key not in wanted],
                operation="RESTORE",
            )

    def restorable(self, number: int) -> bool:
        version = self.log.versions.get(number)
        return version is not None and not version.files & self.free and all(map(self.place.has, version.files))

    def _set_retention(self) -> None:
        self._draw_retention()
        self.commit(more=[{"metaData": self.log.metadata()}], operation="SET TBLPROPERTIES")

    def _change_schema(self) -> None:
        self.log.columns += 1
        self.commit(more=[{"metaData": self.log.metadata()}], operation="ADD COLUMNS")

    def _change_partitions(self) -> None:
        """Delta allows it where all is overwritten."""
        self.log.partition = self.world.random.choice(("k", "day", _HIDDEN))
        added = self.log.data(directory=f"{self.log.partition}=1/")
        removed, about = list(self.log.live.values()), {"metaData": self.log.metadata()}
        self.commit(added=[added], removed=removed, more=[about], operation="REPLACE TABLE")

    def _set_log_cleanup(self) -> None:
        on = self.log.configuration.get("delta.enableExpiredLogCleanup") == "false"
        self.log.configuration["delta.enableExpiredLogCleanup"] = "true" if on else "false"
        self.commit(more=[{"metaData": self.log.metadata()}], operation="SET TBLPROPERTIES")

    def _checkpoint(self) -> None:
        chance = self.world.random
        # deltalake takes some spellings of the retention for a week.
        kept_ms = chance.choice((self.files_ms, self.files_ms, 7 * DAY if self.log_ms >= self.files_ms else 30 * DAY))
        hint = chance.random() < 0.8
        self.log.checkpoint(chance.choice(self.kinds), hint=hint, keep_removed_ms=self.place.ms() - kept_ms)
        self.hinted = self.log.version if hint else self.hinted

    def _lost_checkpoint(self) -> None:
        """A part of a checkpoint whose writer died, or a sidecar that none names."""
        if self.world.random.random() < 0.5 and self.kinds is NEW_KINDS:
            self.place.put(f"{LOG}_sidecars/{self.place.uuid()}.parquet", b"sidecar")
        else:
            self.place.put(f"{LOG}{self.log.version:020d}.checkpoint.0000000001.0000000005.parquet", b"part")

    def _begin_checkpoint(self) -> None:
        if self.kinds is NEW_KINDS:
            self.making = self.log.sidecar()

    def _finish_checkpoint(self) -> None:
        """Not if that took more than a day: nobody keeps a sidecar for so long."""
        making, self.making = self.making, None
        if making is not None and making.sidecar not in self.free and making.version >= self.first:
            self.log.finish(making)

    def _compact_log(self) -> None:
        first = max(self.first, self.log.version - self.world.random.randint(1, 6))
        if first < self.log.version and first > self.first:
            self.log.compact_log(first)

    def _checksum(self) -> None:
        self.log.checksum()

    # ---- jobs that commit later

    def _begin_job(self) -> None:
        files = [self._data() for _ in range(self.world.random.randint(1, 3))]
        self.jobs.append(Job(files=files, optimize=self._rarely()))

    def _commit_job(self) -> None:
        """One whose files waited for too long gives up: nobody promised it anything."""
        job = self.jobs.pop(self.world.random.randrange(len(self.jobs)))
        if not any(one.path in self.free for one in job.files):
            self._publish()
            removed = list(self.log.live.values())[:2] if job.optimize else []
            self.commit(added=job.files, removed=removed)

    def _give_up_job(self) -> None:
        self.jobs.pop(self.world.random.randrange(len(self.jobs)))

    def _stray(self) -> None:
        if self.world.random.random() < 0.7:
            self.log.data("stray")
        else:
            self.log.vector()

    def _announce(self) -> None:
        self.announced = self.log.data()
        name, body = self.log.drafted([self.announced], [], [], "WRITE", None)
        self.temporary = self.place.put(f"{LOG}.tmp/{name}.{self.place.uuid()}", body)

    def _publish(self) -> None:
        if self.announced:
            added, self.announced = self.announced, None
            self.log.commit(added=[added])
            self.place.remove(self.temporary)

    # ---- what stays

    def wait_ms(self) -> int:
        """How long a file waits that no commit names."""
        streams = self.world.rules.stream_state if self.log.transactions else 0
        return int(max(self.world.rules.grace * HOUR, self.files_ms, streams * HOUR))

    def age(self) -> None:
        """Time has passed: what may go by now, may go for ever."""
        now = self.place.ms()
        removed_ms = max(self.files_ms, int(min(24, self.world.rules.grace) * HOUR))
        for name, at_ms in self.log.removed_ms.items():
            if at_ms + removed_ms < now:
                self.free.add(name)
        wait = self.wait_ms()
        if self.making is not None and self.place.age_ms(self.making.sidecar) > DAY:
            self.free.add(self.making.sidecar)
            self.making = None
        uncommitted = [one.path for job in self.jobs for one in job.files]
        for name in [*self.changes, *uncommitted]:
            if name and name not in self.free and self.place.age_ms(name) > wait:
                self.free.add(name)
        if self.log.configuration.get("delta.enableExpiredLogCleanup") != "false":
            self.first = max(self.first, self._first_young())

    def _first_young(self) -> int:
        """The oldest version inside the log's retention; or fewer, as the operator asks for a number of them."""
        midnight = (self.place.ms() - self.log_ms) // DAY * DAY
        least = self.log.version + 1 - self.world.rules.min_snapshots
        for number in range(self.first, least):
            if max(self.log.versions[number].at_ms, self.log.versions[number].stated_ms) > midnight:
                return number
        return max(least, 0)

    def readers(self) -> Iterator[tuple[str, Mapping[str, Stored]]]:
        self.announce_verdict()
        self.age()
        yield "the log", self.place.stored(name for name in self._log_needs() if name not in self.trouble.taken)
        newest = self.log.versions[self.log.version].files
        yield f"version {self.log.version}, the newest", self.place.stored(newest)
        seen = set(newest) | self.free
        for number in range(self.log.version - 1, self.first - 1, -1):
            files = self.log.versions[number].files - seen
            if files:
                yield f"version {number}", self.place.stored(files)
                seen |= files
        yield "change data", self.place.stored(name for name in self.changes if name not in self.free)
        for job in self.jobs:
            waiting = [one.path for one in job.files if one.path and one.path not in self.free]
            yield "a job that has not committed", self.place.stored(waiting)
        yield "somebody else", self.place.stored(self.foreign)
        if self.making is not None and self.making.sidecar not in self.free:
            yield "a checkpoint in the making", self.place.stored([self.making.sidecar])
        if self.announced:
            yield "a commit that counts", self.place.stored([*self.announced.files(), self.temporary])
        yield from self.extra.readers()
        yield from self.others.readers()

    def _log_needs(self) -> list[str]:
        """The newest checkpoint of the oldest version that anybody asks for, and all that comes behind it."""
        base = max((one.version for one in self.log.checkpoints if one.version <= self.first), default=self.start)
        found = [f"{LOG}{number:020d}.json" for number in range(base, self.log.version + 1)]
        for one in self.log.checkpoints:
            if one.version >= base:
                found += one.files
        hint = f"{LOG}_last_checkpoint"
        return [*found, hint] if hint in self.place.written else found

    def judge(self, address: str, stored: Stored | None, process: str) -> None:
        """The product writes nothing into a Delta table, and deletes what nobody wants."""
        if stored is not None:
            raise Lost(f"{process} wrote {address}")
        self.check_deleted(address, process)

    # ---- the end

    def settle(self) -> None:
        self.age()
        self.changed()
        self._publish()
        self.jobs.clear()
        self.making = None
        self.trouble.settle()
        self.others.settle()
        if self._waits_for_a_checkpoint():
            self._commit_and_checkpoint()

    def _waits_for_a_checkpoint(self) -> bool:
        """Did a restore bring commits back, and is the only checkpoint behind them older? In Delta's own cleanup no log
        begins with such a checkpoint: time travel by date would find other versions than before."""
        restored_ms = dict[int, float]()
        for number, version in self.log.versions.items():
            there = self.world.objects.get(f"{self.place.address}/{LOG}{number:020d}.json")
            if there and (at_ms := there.modified_at.timestamp() * 1000) > version.at_ms + 5000:
                restored_ms[number] = at_ms
        last = max(restored_ms, default=self.log.version)
        behind = {one.version: one for one in self.log.checkpoints if last < one.version <= self.hinted}
        return len(behind) == 1 and all(self._made_ms(one) <= restored_ms[last] for one in behind.values())

    def _commit_and_checkpoint(self) -> None:
        """A person does what the plan says."""
        self.world.advance(timedelta(minutes=1))
        self.commit()
        self.log.checkpoint("classic")
        self.hinted = self.log.version
        self.changed()
        self.world.seen["a checkpoint was written for restored commits"] += 1

    def overdue(self) -> Sequence[object]:
        """Commits below the newest checkpoint that the log may begin with. Where the operator asks for a number of
        versions, the log may begin with an earlier one."""
        off = self.log.configuration.get("delta.enableExpiredLogCleanup") == "false"
        if off or self.world.rules.min_snapshots > 1:
            return ()
        able = (one.version for one in self.log.checkpoints if one.version <= self.hinted and self._is_later(one))
        begin = max(able, default=0)
        return [name for number in range(begin) if self.place.has(name := f"{LOG}{number:020d}.json")]

    def _is_later(self, checkpoint: Checkpoint) -> bool:
        """Is it younger than all commits before it? Otherwise time travel still needs those. Also any part
        of its version whose writer died: Delta's own cleanup stops at one that is no younger than the commit before."""
        made_ms = self._made_ms(checkpoint)
        return all(self.log.versions[number].at_ms + 5000 < made_ms for number in range(checkpoint.version))

    def _made_ms(self, checkpoint: Checkpoint) -> float:
        """When the first checkpoint of its version was written, or a part of one."""
        same = {one.files[-1] for one in self.log.checkpoints if one.version == checkpoint.version}
        same |= {name for name in self.place.names() if name.startswith(f"{LOG}{checkpoint.version:020d}.checkpoint.")}
        return min(self.place.written[name].modified_at.timestamp() for name in same) * 1000

    def dead(self) -> set[str]:
        if self.lite or "far clones" in self.extras:
            return set()  # it sees only what the log tells; or data files stay
        live = self.log.versions[self.log.version].files | self.others.lent() | self.others.once
        live |= self.foreign | self.unnamed() | self.extra.beside.ever
        if self.log.partition != _HIDDEN:  # as in Delta's own vacuum, such a directory is a partition or nobody's
            live |= {name for name in self.place.names() if name.startswith(_HIDDEN)}
        found = (name for name in self.place.names() if not name.startswith(LOG) and name not in live)
        return {f"{self.place.address}/{name}" for name in found}

    def unnamed(self) -> set[str]:
        """Files whose names say nothing go only as long as the log tells that they were the table's; and what a log
        calls by the name of a mount stays until a checkpoint has forgotten it."""
        mounted = {
            one.path for version in self.log.versions.values() for one in version.live if one.spelled[:5] == "dbfs:"
        }
        odd = {name for name in self.place.names() if not name.endswith((".parquet", ".bin"))}
        return odd | {name for name in mounted if name}
