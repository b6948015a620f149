"""What test_paimon_cycle.py and its neighbours are made of."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.builders.cycles import Bench, SetClock
from tests.builders.paimon_model import Line, ModelTable
from tests.builders.stores import GatedUnpublishedRemover, StorageSpec

from lakesweep.formats.paimon.table import PaimonTable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.storage.memory import bucket, forget
from lakesweep.storage.registry import open_deleter

NOW = datetime(2026, 5, 1, tzinfo=UTC)


class MovingTable(ModelTable):
    """A table whose owner moves it about as well, as Java does it."""

    created = 1

    def rollback_to_tag(self, name: str) -> None:
        """The main table as a tag has it. A snapshot that has expired comes back, but maybe not its changelog."""
        tag = self.states.get(f"tag/tag-{name}")
        if tag is None:
            return
        number = self._number(tag)
        key = f"snapshot/snapshot-{number}"
        if key not in self.stored():
            self._stand(key, tag, changelog=tag.changelog <= self.stored())
        self._remove_from(number + 1)
        self._continue_at(self.states[key])

    def fast_forward(self, branch: str) -> None:
        """The main table as a branch has it, which stays."""
        under = f"{self._under(branch)}snapshot/"
        snapshots = {key: state for key, state in self.states.items() if key.startswith(under)}
        if not snapshots:
            return
        self._remove_from(min(map(self._number, snapshots.values())))
        for key, state in snapshots.items():
            self._stand(key.removeprefix(self._under(branch)), state, changelog=state.changelog <= self.stored())
        self._continue_at(self.lines[branch])
        if f"{under}LATEST" not in self.stored():  # Java deletes the hint, and copies the branch's if there is one
            self._remove("snapshot/LATEST")

    def rename_tag(self, name: str, new: str) -> None:
        self._move(f"tag/tag-{name}", f"tag/tag-{new}")

    def rename_branch(self, name: str, new: str) -> None:
        if name in self.lines and new not in self.lines:
            self.lines[new] = self.lines.pop(name)
            for key in sorted(key for key in self.stored() if key.startswith(self._under(name))):
                self._move(key, self._under(new) + key.removeprefix(self._under(name)))

    def recreate(self) -> None:
        """Dropped, and created anew under the same name."""
        for key in self.stored():
            self._remove(key)
        self.lines, self.files = {"main": Line()}, []
        self.created += 1
        self.put_json("schema/schema-0", self.schema({}) | {"timeMillis": self.created})

    def snapshot_files(self) -> dict[str, bytes]:
        """Those of the main table, with what is in them."""
        found = [key for key in self.standing() if key.startswith("snapshot/")]
        return {key: self.bucket.objects[f"{self.place}/{key}"].data for key in found}

    def _continue_at(self, state: Line) -> None:
        self.lines["main"] = state.copy()
        self.lines["main"].next_id = self._number(state) + 1
        self.put("snapshot/LATEST", str(self._number(state)).encode())

    def _remove_from(self, number: int) -> None:
        for key, state in list(self.states.items()):
            if key.startswith(("snapshot/", "tag/")) and self._number(state) >= number:
                self._remove(key)

    def _move(self, key: str, new: str) -> None:
        if key in self.stored() and new not in self.stored():
            self.bucket.objects[f"{self.place}/{new}"] = self.bucket.objects[f"{self.place}/{key}"]
            if key in self.states:
                self.needs[new], self.states[new] = self.needs[key], self.states[key]
            self._remove(key)

    @staticmethod
    def _number(state: Line) -> int:
        assert state.snapshot is not None
        return int(state.snapshot["id"])


@dataclass(frozen=True)
class Step:
    """One thing that happens to a table, by name."""

    name: str
    arguments: tuple[Any, ...] = ()
    branch: str | None = None

    def __call__(self, table: MovingTable) -> None:
        if self.branch is not None and self.branch in table.lines:
            getattr(table, self.name)(*self.arguments, branch=self.branch)
        elif self.branch is None:
            getattr(table, self.name)(*self.arguments)


@contextmanager
def world(history: list[Step], options: dict[str, str] | None = None) -> Iterator[tuple[MovingTable, Bench]]:
    name = uuid.uuid4().hex
    try:
        table = MovingTable(bucket(name), "wh/d.db/t", NOW - timedelta(days=1), options)
        for step in history:
            step(table)
        with tempfile.TemporaryDirectory() as scratch:
            bench = Bench(root=f"memory://{name}/wh", clock=SetClock(NOW), scratch=Path(scratch))  # type: ignore[arg-type]
            bucket(name).clock = lambda: NOW
            yield table, bench
    finally:
        forget(name)


def handle(table: MovingTable, bench: Bench) -> PaimonTable:
    root = Location.parse(str(bench.root))
    return PaimonTable(
        ref=TableRef(tenant=TenantId("t"), dataset="d", name="t", format=FormatName.PAIMON),
        location=Location.parse(table.address),
        storage=bench.storage,
        tenant_root=root,
        writer=bench.writer,
        remover=GatedUnpublishedRemover(lambda: open_deleter(StorageSpec()), root),
    )
