"""Everybody who uses one Paimon table: writers, streams, other cleaners, readers of each root. No product code.

What stays: every root that is there is whole (a snapshot is closed before its files go), and a snapshot or changelog
may only be closed by Paimon's rules: by number and age, behind every consumer, and not while a stream may come back
for its newest commit. Files of a job that has not committed yet stay for as long as the product promises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from tests.sim.formats import paimon_bytes
from tests.sim.formats import paimon_drops as drops
from tests.sim.formats.paimon_log import DataFile, IndexFile, PaimonLog, Root
from tests.sim.formats.paimon_more import More
from tests.sim.formats.paimon_others import Others
from tests.sim.formats.paimon_rules import Rules
from tests.sim.formats.paimon_trouble import Trouble
from tests.sim.formats.watching import WatchingModel
from tests.sim.world import Lost, Stored, World

PARTITIONS = ("a", "b", "2026-01-05", None)


@dataclass(slots=True, kw_only=True)
class Job:
    """Files that a writer holds and has not committed."""

    files: list[DataFile]
    compacts: bool


class PaimonModel(WatchingModel):
    """The table at `location`."""

    format = "paimon"
    commits = frozenset({"roll_back_and_commit", "commit_late_job"})
    location = "s3://lake/wh/db.db/t"
    external = "s3://lake/ext/t"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.others = Others(self)
        self.extra = More(self)
        self.trouble = Trouble(self)
        self.reasons: set[str] = set()
        self.dropped: tuple[int, int] | None = None
        """When the table was created anew: the product's newest call, and the newest that had its effect."""
        self.rollbacks: list[tuple[tuple[int, int], int]] = []
        """When snapshots were taken back, likewise, and the number behind which all went."""
        self.forwards: list[tuple[int, int]] = []
        """When the table became a branch that begins later than the table's newest snapshot, likewise."""
        self.astray: str | None = None
        """A snapshot that the product put into a table which it was not meant for: see `paimon_drops`."""
        self.hides_rollback = False
        """Does that one hide a rollback? Then nothing may be deleted until a person has decided."""

    def places(self) -> Mapping[str, str]:
        return {"warehouse": "s3://lake/wh"}

    def settings(self) -> Mapping[str, str | bool]:
        return {"database": "db"}

    def create(self) -> None:
        """A new table, where there is none."""
        chance = self.world.random
        self.extra.forget()
        self.rules = Rules(self)
        self.log = PaimonLog(self.world, self.location, self.rules.draw())
        if chance.random() < 0.3:
            self.log.external = self.external
            self.log.options["data-file.external-paths"] = self.external
            self.log.write_schema()
        self.streaming = chance.random() < 0.4
        self.consumers: dict[str, int] = {}
        self.jobs: list[Job] = []
        self.streams: dict[str, int] = {}
        self.free: set[str] = set()
        """Uncommitted files that waited for too long: once free, always free."""

    # ---- what may happen

    def crossings(self) -> Sequence[str]:
        return self.extra.crossings()

    def cycle_ended(self, outcome: str) -> None:
        self.extra.cycle_ended(outcome)

    def steps(self) -> Sequence[str]:
        if self.extra.crossed is not None:
            return ["stray"]
        found = ["append"] * 4 + ["begin_job", "stray", "set_options", "foreign"]
        if self.streaming:
            found += ["stream"] * 3
        if self.rules.producer != "none":
            found += ["append_with_changelog"] * 3
        if self.log.latest() is not None:
            found += ["overwrite", "compact", "compact", "upgrade", "merge", "drop_partition", "hash_index", "vectors"]
            found += ["wrong_hint", "analyze", "tag", "tag", "branch", "consume", "consume", "rollback", "as_latest"]
        if self.jobs:
            found += ["commit_job", "commit_job", "give_up_job"]
        if "alterations" in self.extras:
            found += ["change_schema", "change_schema"]
        return self.trouble.steps() or found + self.others.steps() + self.extra.steps()

    def revivals(self) -> Sequence[str]:
        if self.trouble.steps() or self.extra.crossed is not None:
            return ()
        far = ["consume_again", "roll_back_far"] if self.log.latest() is not None else []
        return [*far, *self.trouble.revivals(), *self.extra.revivals()]

    def do(self, name: str) -> None:
        self._roll_back_astray()
        self.age()
        actors = (("accident", self.trouble), ("others", self.others), ("writer", self.extra), ("writer", self))
        for actor, who in actors:
            if act := getattr(who, f"_{name}", None):
                self.world.say(actor, name)
                act()
                break
        self.changed()

    def line(self) -> str:
        """The main table mostly, or one of its branches."""
        branches = [name for name in self.log.states if name]
        return self.world.random.choice(branches) if branches and self.world.random.random() < 0.2 else ""

    def partition(self) -> str | None:
        if self.rules.partition_days is None:
            return self.world.random.choice(PARTITIONS)
        days = timedelta(days=self.world.random.choice((0, 0, 1, 2, 3, 6)))
        return f"{self.world.now - days:%Y-%m-%d}"

    def live(self, branch: str, partition: str | None) -> list[DataFile]:
        return [one for one in self.log.states[branch].live.values() if one.partition == partition]

    def _merge_now(self) -> bool:
        return self.world.random.random() < 0.15

    def _append(self) -> None:
        branch = self.line()
        extras = int(self.world.random.random() < 0.2)
        files = [self.log.data(self.partition(), extras=extras) for _ in range(self.world.random.randint(1, 2))]
        self.log.commit(branch, adds=files, merge=self._merge_now())

    def _append_with_changelog(self) -> None:
        partition = self.partition()
        changes = [self.log.data(partition, stem="changelog")]
        self.log.commit(adds=[self.log.data(partition)], changelog=changes, merge=self._merge_now())

    def _stream(self) -> None:
        name = self.world.random.choice(("flink-a", "flink-b"))
        number = self.streams[name] = self.streams.get(name, 0) + 1
        self.log.commit(adds=[self.log.data(self.partition())], stream=(name, number))

    def _overwrite(self) -> None:
        branch, partition = self.line(), self.partition()
        old = self.live(branch, partition)
        self.log.commit(branch, adds=[self.log.data(partition)], deletes=old, kind="OVERWRITE")

    def _drop_partition(self) -> None:
        branch, partition = self.line(), self.partition()
        old = self.live(branch, partition)
        if old:
            self.log.commit(branch, deletes=old, kind="OVERWRITE")

    def _compact(self) -> None:
        branch, partition = self.line(), self.partition()
        old = self.live(branch, partition)
        if old:
            merged = self.log.data(partition, level=5, source=1)
            self.log.commit(branch, adds=[merged], deletes=old, kind="COMPACT", merge=self._merge_now())

    def _upgrade(self) -> None:
        """A file moves up a level under the same name."""
        branch, partition = self.line(), self.partition()
        for one in self.live(branch, partition)[:1]:
            if one.level < 5:
                higher = DataFile(
                    address=one.address,
                    partition=partition,
                    level=one.level + 1,
                    source=one.source,
                    created_ms=one.created_ms,
                    extras=one.extras,
                    external=one.external,
                )
                self.log.commit(branch, adds=[higher], deletes=[one], kind="COMPACT")

    def _merge(self) -> None:
        self.log.commit(self.line(), merge=True, kind="COMPACT")

    def _hash_index(self) -> None:
        branch = self.line()
        address = self.log.named("index", "index", b"index")
        record = paimon_bytes.indexed("HASH", address.rpartition("/")[2], "a")
        kept = tuple(one for one in self.log.states[branch].index if one.of is not None)
        self.log.commit(branch, index=(*kept, IndexFile(address=address, record=record, partition="a")))

    def _vectors(self) -> None:
        """Rows of one file are deleted: another index file has the vector."""
        branch = self.line()
        state = self.log.states[branch]
        if not state.live:
            return
        of = self.world.random.choice(list(state.live.values()))
        address = self.log.named("index", "index", b"index")
        record = paimon_bytes.indexed("DELETION_VECTORS", address.rpartition("/")[2], of.partition, [of.name])
        kept = tuple(one for one in state.index if one.of != of.address)
        self.log.commit(
            branch, index=(*kept, IndexFile(address=address, record=record, partition=of.partition, of=of.address))
        )

    def _analyze(self) -> None:
        about = paimon_bytes.document({"schemaId": self.log.schemas - 1, "mergedRecordCount": 1})
        address = self.log.named("statistics", "stat", about)
        self.log.commit(statistics=address, kind="ANALYZE")

    # ---- tags, branches, consumers, rollbacks

    def _tag(self) -> None:
        branch = self.line()
        found = self.log.snapshots(branch)
        if found:
            root = self.world.random.choice(found)
            more = {"tagCreateTime": [2026, 1, 5, 8, 0], "tagTimeRetained": 3600.0} if self._merge_now() else {}
            self.log.copy(root, f"tag/tag-{self.world.uuid()[:4]}", "tag", branch, **more)

    def _branch(self) -> None:
        """From the newest snapshot, or from a tag."""
        name = self.world.random.choice(("x", "y", "team/z"))
        latest = self.log.latest()
        if name not in self.log.states and latest is not None:
            root = self.world.random.choice([latest, *self.log.snapshots(kind="tag")])
            self.log.write_schema(name)
            self.log.copy(root, f"snapshot/snapshot-{root.number}", "snapshot", name)
            if root.kind == "tag":
                self.log.copy(root, f"tag/{root.address.rpartition('/')[2]}", "tag", name)
            self.log.states[name] = root.state

    def _consume(self) -> None:
        """A consumer comes, goes on or starts again, where history is not about to go."""
        able = [one.number for one in self.log.snapshots() if one not in self.rules.doomed]
        number = self.world.random.choice([*able, able[-1] + 1])
        self.set_consumer(self.world.random.choice(("p", "q")), number)

    def _consume_again(self) -> None:
        """A consumer goes back to a snapshot that may be about to go: if it is there, it stays from now on."""
        root = self.world.random.choice(self.log.snapshots())
        self.set_consumer("r", root.number)
        if not self.rules.changelog_only:
            self.rules.doomed -= {one for one in self.log.snapshots() if one.number >= root.number}

    def _roll_back_far(self) -> None:
        """Back to any snapshot that is there, also one that may be about to go."""
        self.rules.doomed -= {target := self.world.random.choice(self.log.snapshots())}
        self.back_to(target)

    def set_consumer(self, name: str, number: int) -> None:
        self.consumers[name] = number
        self.log.put(self.log.at(f"consumer/consumer-{name}"), paimon_bytes.document({"nextSnapshot": number}))

    def _rollback(self) -> None:
        """Back to an older snapshot; ids are used again. What was committed since is left lying about."""
        able = [one for one in self.log.snapshots() if one not in self.rules.doomed]
        self.back_to(self.world.random.choice(able))

    def back_to(self, target: Root) -> None:
        self.goes_back(target.number)
        for kind in ("snapshot", "tag", "changelog"):
            for one in self.log.snapshots(kind=kind):
                if one.number > target.number:
                    self.log.remove(one.address)
        self.log.states[""] = target.state
        self.log.hint("LATEST", target.number)
        self.streams = {one.stream: one.document["commitIdentifier"] for one in self.log.snapshots() if one.stream}

    def goes_back(self, number: int) -> None:
        """Snapshots behind this number are taken back: a commit that was made from one of them goes astray."""
        self.rollbacks.append(((self.world.calls, self.world.effected), number))

    def _as_latest(self) -> None:
        """An older state becomes the newest, in a commit of its own."""
        able = [one for one in self.log.snapshots() if one not in self.rules.doomed]
        target = self.world.random.choice([*able, *self.log.snapshots(kind="tag")])
        now, then = self.log.states[""].live, target.state.live
        self.log.commit(
            adds=[one for key, one in then.items() if key not in now],
            deletes=[one for key, one in now.items() if key not in then],
            index=target.state.index,
            kind="OVERWRITE",
        )

    def cycle_begins(self) -> None:
        if not self.hides_rollback:  # else nobody has noticed yet
            self._roll_back_astray()
        self.extra.cycle_begins()
        self.rules.closed_now.clear()
        super().cycle_begins()

    def _roll_back_astray(self) -> None:
        """A person does what docs/safety.md says: the table goes back to its own newest snapshot."""
        if self.astray is not None:
            self.world.remove(self.astray)
            self.world.remove(self.log.at("snapshot/LATEST"))
            self.astray, self.hides_rollback = None, False

    def _confirm_commits(self) -> None:
        """A person does what the product asks for: a LATEST hint that is behind one of its commits is put right."""
        latest, hint = self.log.latest(), self.world.objects.get(self.log.at("snapshot/LATEST"))
        named = int(hint.data) if hint else 0
        if latest is not None and any(one.number > named and drops.is_ours(one) for one in self.log.snapshots()):
            self.log.hint("LATEST", latest.number)

    # ---- jobs, strays, options

    def _begin_job(self) -> None:
        compacts = self.world.random.random() < 0.3
        files = [self.log.data(self.partition(), level=5 if compacts else 0, source=int(compacts))]
        self.jobs.append(Job(files=files, compacts=compacts))

    def _commit_job(self) -> None:
        """One whose files waited for too long gives up: nobody promised it anything."""
        job = self.jobs.pop(self.world.random.randrange(len(self.jobs)))
        if not any(one.address in self.free for one in job.files):
            old = self.live("", job.files[0].partition) if job.compacts else []
            self.log.commit(adds=job.files, deletes=old, kind="COMPACT" if job.compacts else "APPEND")

    def _give_up_job(self) -> None:
        self.jobs.pop(self.world.random.randrange(len(self.jobs)))

    def _stray(self) -> None:
        kind = self.world.random.choice(("data", "manifest", "list", "index", "tmp"))
        if kind == "data":
            self.log.data(self.partition(), extras=int(self._merge_now()))
        elif kind == "tmp":
            self.log.put(self.log.at(f"snapshot/.snapshot-9.{self.world.uuid()}.tmp"), b"{}")
        else:
            place = {"manifest": "manifest", "list": "manifest-list", "index": "index"}[kind]
            self.log.named("index" if kind == "index" else "manifest", place, b"stray")

    def _foreign(self) -> None:
        """Somebody keeps copies in the table's directory, under the same names."""
        some = self.world.random.choice(sorted(self.log.written))
        inside = some.removeprefix(f"{self.location}/")
        if inside != some:
            self.log.put(self.log.at(f"backup/{inside}"), self.log.written[some].data)

    def _set_options(self) -> None:
        self.rules.redraw()
        self.log.write_schema()

    def _change_schema(self) -> None:
        """A new column."""
        self.log.columns += 1
        self.log.write_schema()

    def _wrong_hint(self) -> None:
        """Hints are no promise: others write them late, or not at all."""
        address = self.log.at(f"snapshot/{self.world.random.choice(('LATEST', 'EARLIEST'))}")
        if self.world.random.random() < 0.5:
            self.world.remove(address)
        else:
            latest = self.log.latest()
            number = self.world.random.randint(1, latest.number if latest else 1)
            self.world.put(address, str(number).encode(), "writer")

    # ---- what stays

    def age(self) -> None:
        """Time has passed: what may go by now, may go for ever."""
        self.rules.age()
        wait = self.rules.wait_ms()
        now = self.world.ms()
        for job in self.jobs:
            for one in job.files:
                if one.created_ms // 1000 * 1000 + wait < now:
                    self.free.add(one.address)

    def readers(self) -> Iterator[tuple[str, Mapping[str, Stored]]]:
        self.announce_verdict()
        self.age()
        for who, addresses in self._needs():
            yield who, {name: self.log.written[name] for name in addresses if name not in self.trouble.taken}
        yield from self.extra.readers()
        yield from self.others.readers()

    def expiring(self) -> set[str]:
        return {root.address[len(self.log.address) + 1 :] for root in self.rules.doomed}

    def _needs(self) -> Iterator[tuple[str, list[str]]]:
        log, doomed = self.log, self.rules.doomed
        lasting = self.rules.decoupled or any(one.kind == "changelog" for one in log.roots.values())
        start = len(log.address) + 1
        for address, root in log.roots.items():
            found = [] if root in doomed else [address]
            if root.kind != "changelog":
                found += root.whole
            found += [name for name in self._streamed(root, lasting=lasting) if name in log.written]
            yield address[start:], found
        own = ("schema/", "consumer/", "branch/", "backup/")
        yield "the table", [name for name in log.written if name[start:].startswith(own) and name not in log.roots]
        for job in self.jobs:
            waiting = [name for one in job.files for name in one.addresses() if one.address not in self.free]
            yield "a job that has not committed", waiting

    def _streamed(self, root: Root, *, lasting: bool) -> frozenset[str]:
        """What streams read of a root. Where a table keeps no changelogs they read deltas: of snapshots, which have
        what was added, and as long as changelogs outlive snapshots what was deleted, too."""
        if root.kind == "tag":
            return frozenset()
        if root.changelog or "changelogManifestList" in root.document or self.rules.producer != "none":
            return root.changelog
        return root.delta if lasting or root.kind == "changelog" else frozenset()

    def judge(self, address: str, stored: Stored | None, process: str) -> None:
        """The product deleted or wrote something."""
        if stored is not None:
            self.rules.judge_written(address, stored)
            self.extra.written(address)
            return
        if self.hides_rollback and address not in self.world.discarded:
            raise Lost(f"{process} deleted {address} although {self.astray} hides a rollback")
        self.check_deleted(address, process)
        self.log.written.pop(address, None)
        root = self.log.roots.pop(address, None)
        if root is not None:
            self.rules.judge_closed(root)
            self.changed()

    # ---- the end

    def settle(self) -> None:
        self._roll_back_astray()
        self._confirm_commits()
        self.age()
        self.jobs.clear()
        self.trouble.settle()
        self.others.settle()
        self.extra.settle()
        if self.log.latest() is None:
            self.reasons.add("no_snapshots")  # a first commit may have failed, or history was lost: a person knows
        self.changed()

    def overdue(self) -> Sequence[object]:
        return [one.address for one in self.rules.due()]

    def dead(self) -> set[str]:
        """What a document names may stay as long as the document, although nobody was promised that."""
        self.changed()
        wanted, found = set(self.wanted()), set[str]()
        for root in self.log.roots.values():
            if root.kind != "tag":
                wanted.update(root.logged, root.delta, (name for name in root.whole if "/manifest/" in name))
        for top in (self.location, self.external):
            for address, _ in self.world.below(f"{top}/"):
                inside = address[len(top) + 1 :]
                if address not in wanted and self._is_ours(inside):
                    found.add(address)
        return found

    @staticmethod
    def _is_ours(inside: str) -> bool:
        """May it go at all? Snapshots, changelogs and hints have their own rules."""
        if inside.startswith(("snapshot/", "changelog/")):
            return inside.endswith(".tmp")
        return not inside.startswith(("schema/", "tag/", "consumer/", "branch/", "backup/"))
