"""What must hold of a service at every moment and at the end of a story. Judges by the world alone, apart from the
product's own records where these are what is judged.

    no file is lost                       what any reader may ask for is there, byte for byte
    one replica at a time                 who deletes or commits holds the newest lease of the table at that moment
    pauses and changed rules are heard    no request begins after a pause, or under rules that no longer hold; no expiry
                                          is committed that was planned when the table was paused already
    ceilings hold                         a run deletes no more than the ceiling, besides what a person approved
    the books are right                   journal, audit trail and reports say what went, no more and no less; the
                                          intent is in the audit trail before the file is gone
    nobody runs idle                      a table is not cleaned again and again without a pause
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from tests.sim.formats import Model
from tests.sim.replicas import OWN, Replica, SimWorld
from tests.sim.world import Call, Lost, Stored

from lakesweep.cleanup import plan_file
from lakesweep.state.schema import leases

APPROVED_FOR = timedelta(hours=24)
MOST_RUNS = 60
"""Runs of a table within one hour, which only a service without any pause between them reaches."""

Object = tuple[str, str, int | None]
"""An object as plans name it: its address, its digest, and when it was written."""


@dataclass(slots=True)
class _Approved:
    until: datetime
    objects: frozenset[Object]


class Watch:
    """Looks on. `check` after every step, `finish` at the end."""

    def __init__(self, world: SimWorld, model: Model, *, ceiling: int, strict: bool = False) -> None:
        self.world, self.model, self.ceiling = world, model, ceiling
        self._strict = strict
        """Does the model hear of cycles, and what they are at? Stories of older seeds were made without that."""
        self._planning: set[str] = set()
        """Processes that have the lease and have saved no plan yet."""
        self._sweeping: set[str] = set()
        self._paused_plans: set[str] = set()
        """Processes whose plan was saved while the table was paused."""
        self._begun_at: deque[datetime] = deque(maxlen=MOST_RUNS)
        """When the newest runs were begun."""
        self._read: dict[str, Stored] = {}
        self._intents: set[tuple[str, str]] = set()
        """What the audit trail says is about to go, by run, as far as it was read."""
        self.holder: dict[str, str] = {}
        """Who was granted the newest lease of each table."""
        self.had: set[str] = set()
        """Who ever had one."""
        self.begun: dict[tuple[str, int], str] = {}
        """Batches between their intent and their outcome, and who is at it."""
        self.is_paused = False
        self.silenced: set[str] = set()
        """Replicas that were told to change nothing."""
        self.requests: set[object] = set()
        """Tasks that are inside a delete request."""
        self.excused: set[object] = set()
        """Those that were when the pause came: their last question may have been asked before it."""
        self.approvals: list[_Approved] = []
        self.runs: dict[str, str] = {}
        """The run that each process journals for."""
        self.tables: dict[str, str] = {}
        """The table of each run."""
        self.went: dict[str, list[str]] = defaultdict(list)
        """What really went, by run."""
        self._objects: dict[str, list[Object]] = defaultdict(list)
        """The same, as plans name it."""
        self.own: dict[str, str] = {}
        """Objects that the product wrote itself, and which process did."""
        self._dirty = False
        world.watchers.append(self._changed)
        self._wrap_state()

    # ---- told by the story

    def paused(self) -> None:
        self.is_paused = True
        self._excuse()

    def resumed(self) -> None:
        self.is_paused = False
        self._paused_plans.clear()

    def ruled(self, replica: str, *, dry_run: bool) -> None:
        if dry_run:
            self.silenced.add(replica)
            self._excuse()
        else:
            self.silenced.discard(replica)

    async def approved(self, app: Any, run_id: str) -> None:
        header = await app.state.get_plan(run_id)
        async with app.artifacts.opened(header.rows_path) as rows:
            batches = plan_file.read_rows(str(rows))  # plans are not encoded here: see plan_files.py
            objects = frozenset(one for batch in batches for one in _objects(batch))
        self.world.seen["a plan above its ceilings was approved"] += 1
        self.approvals.append(_Approved(self.world.now + APPROVED_FOR, objects))

    def met(self, event: str, call: Call, *, answered: bool) -> None:
        """Something happens at a call of the product: count the situations."""
        seen, sweeping = self.world.seen, bool(self.begun)
        seen[f"{event} {'after' if answered else 'before'} {call.port}.{call.operation}"] += 1
        if event in ("pause", "stop") and sweeping:
            seen["a pause while files are being deleted"] += 1
        elif event in ("settings", "quiet settings") and sweeping:
            seen["changed rules while files are being deleted"] += 1
        elif event == "fault" and call.port == "state":
            seen["an answer of the state store was lost" if answered else "the state store did not answer"] += 1
        elif event == "clock":
            seen["a clock was set while a table is planned or cleaned"] += 1
        elif event == "writer" and self.runs.get(call.process) and not sweeping:
            seen["a writer's step between two batches"] += 1

    def woke(self, replica: str) -> None:
        """A replica goes on that stood still."""
        others = [one for one in self.holder.values() if one != replica]
        if replica in self.had and others:
            self.world.seen["a replica woke up whose table is another's"] += 1

    def is_sweeping(self, process: str) -> bool:
        """Has it begun to delete, in the run that it is at?"""
        return process in self._sweeping

    def is_planning(self, process: str) -> bool:
        return process in self._planning

    def asked(self, call: Call) -> None:
        """The product has decided to make a call. What comes between this and its effect cannot be helped."""
        if call.operation == "save_plan":
            self._planning.discard(call.process)
            self.world.planned = self._strict
            if self.is_paused:
                self._paused_plans.add(call.process)
        elif call.operation == "release_lease":
            self._sweeping.discard(call.process)
        elif call.operation == "commit" and self.world.failure is None:
            if call.process not in self.holder.values():
                self.world.failure = Lost(f"{call.process} commits while {self.holder} works on the table")
            elif self.is_paused and call.process in self._paused_plans:
                self.world.failure = Lost(f"{call.process} commits what it planned while the table was paused")

    def before(self, call: Call) -> None:
        """A call of the product is about to have its effect."""
        if call.operation == "delete":
            self.excused.discard(asyncio.current_task())
            self.requests.add(asyncio.current_task())

    def after(self, call: Call) -> None:
        """A call of the product has had its effect."""
        if call.operation == "delete":
            self.requests.discard(asyncio.current_task())
        if self._dirty and self.world.failure is None:
            self._dirty = False
            try:
                self.check()
            except Lost as exc:
                self.world.failure = exc

    # ---- what is checked

    def check(self) -> None:
        """Nobody misses anything."""
        if self.world.failure is not None:
            raise self.world.failure
        objects = self.world.objects
        for who, wanted in self.model.readers():
            for address, stored in wanted.items():
                found = objects.get(address)
                if found is not stored and (found is None or found.data != stored.data):
                    what = "was changed" if address in objects else "is gone"
                    raise Lost(f"{who} needs {address}, and it {what}")

    async def finish(self, app: Any, replicas: Iterable[Replica]) -> None:
        """The end of a story."""
        for replica in replicas:
            if replica.task is not None and replica.task.done() and not replica.task.cancelled():
                trouble = replica.task.exception()
                if trouble is not None:
                    raise Lost(f"{replica.name} ended with {trouble!r}") from trouble
        self._check_dead(await app.state.list_runs(table="acme/prod/t", limit=5))
        await self._check_books(app)

    def _check_dead(self, runs: list[dict[str, Any]]) -> None:
        left = sorted(address for address in self.model.dead() if address in self.world.objects)
        refused = runs[0]["refused"] if runs else None
        if refused and refused["code"] in self.model.lasting_reasons:
            return  # only a person can settle it
        if left:
            told = [f"{run['outcome']}: {run['reason']}" for run in runs[:3]]
            raise Lost(f"{len(left)} dead files were never cleaned, first {left[0]}; the last runs: {told}")

    async def _check_books(self, app: Any) -> None:
        told = self._audited()
        for run_id, paths in self.went.items():
            for path in paths:
                if (run_id, path) not in told["delete"]:
                    raise Lost(f"{path} was deleted by run {run_id}, and the audit trail has no intent of it")
        for run_id, path in told["deleted"]:
            if path not in self.went.get(run_id, ()):
                raise Lost(f"the audit trail says that run {run_id} deleted {path}, and it did not")
        for document in await app.state.list_runs(limit=10_000):
            await self._check_run(app, document)

    async def _check_run(self, app: Any, document: dict[str, Any]) -> None:
        run_id = document["run_id"]
        went, journal = len(self.went.get(run_id, ())), await app.state.journal(run_id)
        if document["outcome"] is None:
            raise Lost(f"run {run_id} was never closed")
        done = sum(batch.deleted for batch in journal if batch.state == "done")
        open_ = sum(batch.count for batch in journal if batch.state != "done")
        unsure = open_ + sum(batch.failed for batch in journal if batch.state == "done")
        if not done <= went <= done + unsure:
            raise Lost(f"run {run_id} deleted {went} files, its journal says {done} and {unsure} that nobody knows")
        # A batch stays open in the journal if the state store fails once its files have gone; the run knows of them.
        reported = document["deleted"]["count"]
        if reported != done and not (open_ and done <= reported <= went):
            raise Lost(f"the report of run {run_id} says {reported} deleted, its journal {done}")

    def _audited(self) -> dict[str, set[tuple[str, str]]]:
        found: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for _, stored in self.world.below(_AUDIT):
            for kind, run_id, path in _records(stored):
                found[kind].add((run_id, path))
        return found

    def _read_intents(self) -> None:
        """What is new in the audit trail."""
        for address, stored in self.world.below(_AUDIT):
            if self._read.get(address) is not stored:
                self._read[address] = stored
                self._intents |= {(run_id, path) for kind, run_id, path in _records(stored) if kind == "delete"}

    # ---- seen in the world

    def _changed(self, address: str, stored: Stored | None, process: str) -> None:
        self._dirty = True
        if stored is not None:
            self.own[address] = process
            return
        run_id, task = self.runs.get(process), asyncio.current_task()
        if task is None or not task.get_name().startswith("batch "):
            if self.own.pop(address, None) != process:
                raise Lost(f"{process} deleted {address} outside of any batch")
            return
        if run_id is None:
            raise Lost(f"{process} deleted {address} before any batch was in the journal")
        self.went[run_id].append(address)
        self._objects[run_id].append(_object(address, self.world.removed))
        holder = self.holder.get(self.tables[run_id])
        if holder != process:
            raise Lost(f"{process} deleted {address} while {holder} works on the table")
        if asyncio.current_task() not in self.excused:
            if self.is_paused:
                raise Lost(f"{process} deleted {address} although the table is paused")
            if process in self.silenced:
                raise Lost(f"{process} deleted {address} under rules that no longer hold")
        self._check_ceiling(run_id)
        self._read_intents()
        if (run_id, address) not in self._intents:
            raise Lost(f"{process} deleted {address} before the audit trail said so")

    def _check_ceiling(self, run_id: str) -> None:
        valid = [one for one in self.approvals if self.world.now <= one.until + timedelta(hours=6)]
        covered = frozenset[Object]().union(*(one.objects for one in valid))
        going = [one for one in self._objects[run_id] if one not in covered]
        if len(going) > self.ceiling:
            raise Lost(f"run {run_id} deleted {len(going)} files, above the ceiling of {self.ceiling}")

    def _run_begins(self) -> None:
        """Somebody has got the table."""
        world = self.world
        self._planning, self._paused_plans, world.planned = {world.caller}, set(), False
        self._sweeping.discard(world.caller)
        if self._strict:
            self.model.cycle_begins()
        times = self._begun_at
        times.append(world.now)
        if len(times) == MOST_RUNS and world.now - times[0] < timedelta(hours=1):
            world.failure = world.failure or Lost(f"the table was worked on {MOST_RUNS} times within an hour")
            world.end_all()

    def _excuse(self) -> None:
        self.excused |= self.requests

    def _wrap_state(self) -> None:
        """Leases and batches, as the state store grants and takes them."""
        state: Any = self.world.state
        start, acquire, begin = state.start_run, state.acquire_lease, state.begin_batch
        finish, close = state.finish_batch, state.close_run
        watch, world = self, self.world

        async def start_run(run: Any) -> None:
            watch.tables[run.id] = run.table.label
            await start(run)

        async def acquire_lease(table: str, owner: str, ttl: timedelta) -> Any:
            query = sa.select(leases).where(leases.c.table == table)
            held = await state.database.run(lambda connection: connection.execute(query).one_or_none())
            granted = await acquire(table, owner, ttl)
            if granted is not None and held is not None and held.owner != owner and world.now < held.expires_at:
                world.failure = world.failure or Lost(f"{owner} was given {table} while {held.owner} held it")
            if granted is not None:
                watch._run_begins()
                before, watch.holder[table] = watch.holder.get(table), world.caller
                watch.had.add(world.caller)
                if before != world.caller and before in watch.begun.values():
                    world.seen["a lease was taken over while its holder was deleting"] += 1
                if before != world.caller and before in world.frozen():
                    world.seen["a lease was taken over from a replica that stands still"] += 1
            return granted

        async def begin_batch(record: Any) -> None:
            await begin(record)
            watch.runs[world.caller] = record.run_id
            watch.begun[record.run_id, record.number] = world.caller
            watch._sweeping.add(world.caller)

        async def finish_batch(record: Any) -> None:
            await finish(record)
            watch.begun.pop((record.run_id, record.number), None)

        async def close_run(document: Any) -> bool:
            closed: bool = await close(document)
            world.seen["a run that was interrupted was closed by another"] += closed
            return closed

        state.start_run, state.acquire_lease, state.begin_batch = start_run, acquire_lease, begin_batch
        state.finish_batch, state.close_run = finish_batch, close_run


_AUDIT = f"{OWN}lakesweep/audit/"


def _records(stored: Stored) -> Iterator[tuple[str, str, str]]:
    """The files that a part of an audit trail names: the kind of the record, the run, the path."""
    head, *lines = stored.data.splitlines()
    run_id = json.loads(head).get("run_id", "")
    for line in lines:
        record = json.loads(line)
        if "path" in record:
            yield record["record"], run_id, record["path"]


def _object(address: str, stored: Stored) -> Object:
    return address, stored.etag, stored.modified_ms


def _objects(rows: pa.RecordBatch) -> Iterator[Object]:
    """What the rows of a plan name."""
    times = rows.column("modified_at").cast(pa.int64()).to_pylist()
    return zip(rows.column("path").to_pylist(), rows.column("etag").to_pylist(), times, strict=True)
