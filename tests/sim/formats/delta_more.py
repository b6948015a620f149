"""What else happens to a Delta table in the stories that are about it: see `subjects`. No product code.

`model.extras` says which of these a story has. In all other stories none of them happens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.sim.formats import delta_bytes, iceberg_bytes
from tests.sim.formats.delta_log import LOG, Added, Checkpoint
from tests.sim.world import Stored

if TYPE_CHECKING:
    from tests.sim.formats.delta import DeltaModel

_MOST_SCANS = 3


@dataclass(slots=True, kw_only=True)
class IcebergSnapshot:
    """One snapshot of the Iceberg table beside the log: the data files that it has, and its own two files."""

    number: int
    text: str
    data: frozenset[str]
    files: frozenset[str]


@dataclass(slots=True)
class Beside:
    """The Iceberg metadata in the table's directory, as its last commit left it."""

    commits: int = 0
    current: str = ""
    snapshots: list[IcebergSnapshot] = field(default_factory=list)
    ever: set[str] = field(default_factory=set)
    """Data files that it has ever named: some stay for as long as an older metadata file is one of the newest."""

    def named(self) -> set[str]:
        """Everything below the table that its readers open."""
        found = {name for one in self.snapshots for name in (*one.data, *one.files)}
        return found | {self.current} if self.current else found


class More:
    """Steps of some stories."""

    def __init__(self, model: DeltaModel) -> None:
        self.model = model
        self.forget()

    def forget(self) -> None:
        """The table is created anew."""
        self.scans: list[frozenset[str]] = []
        """What queries read that are under way."""
        self.beside = Beside()

    def steps(self) -> list[str]:
        more, found = self.model.extras, []
        if "scans" in more:
            found += ["begin_scan"] * 3 + ["other_log_cleanup"] * 3 + ["end_scan"] * bool(self.scans)
        if "checkpoints" in more:
            found += ["break_checkpoint", "half_checkpoint"]
        if "iceberg" in more:
            found += ["iceberg_commit"] + ["iceberg_expires"] * bool(self.beside.snapshots)
        return found

    def revivals(self) -> list[str]:
        more, found = self.model.extras, []
        if "returns" in more:
            found += ["restore_far", "replace_commit"] + ["commit_late_job"] * bool(self.model.jobs)
        if "checkpoints" in more:
            found += ["remove_checkpoint"] * 6
        if "iceberg" in more:
            found.append("iceberg_takes_back")
        return found

    # ---- queries that began before a file was removed

    def _begin_scan(self) -> None:
        """It has read the log, and opens one file after the other from now on. Often another writer removes the oldest
        of them just then."""
        model, log = self.model, self.model.log
        self.scans = [*self.scans, log.versions[log.version].files][-_MOST_SCANS:]
        if log.live and model.world.random.random() < 0.7:
            model.commit(removed=[next(iter(log.live.values()))])
            model.do("append")
            model.do("checkpoint")

    def _end_scan(self) -> None:
        self.scans.pop(0)

    # ---- what was dead is live again

    def _restore_far(self) -> None:
        """Delta restores whatever is still there, however long ago it was removed."""
        if able := self._able():
            self.model.commit(**self._changes_to(self.model.world.random.choice(able)), operation="RESTORE")
            self.model.free -= self.model.log.versions[self.model.log.version].files

    def _able(self) -> list[tuple[Added, ...]]:
        """States of the table, inside the log's retention, whose files are all there."""
        model = self.model
        known = (model.log.versions[number] for number in range(model.first, model.log.version))
        return [one.live for one in known if all(map(model.place.has, one.files))]

    def _changes_to(self, state: tuple[Added, ...]) -> dict[str, list[Added]]:
        wanted, live = {one.key: one for one in state}, self.model.log.live
        return {
            "added": [one for key, one in wanted.items() if key not in live],
            "removed": [one for key, one in live.items() if key not in wanted],
        }

    def _commit_late_job(self) -> None:
        """Its files waited longer than anybody promised to keep them, and they are there all the same."""
        model = self.model
        job = model.jobs.pop(0)
        names = [one.path for one in job.files if one.path]
        if all(map(model.place.has, names)):
            model.commit(added=job.files)
            model.free.difference_update(names)

    def _replace_commit(self) -> None:
        """Two writers make the same version, on a store that cannot create a file only if it is absent: the later one
        replaces the commit of the other. It knows the versions before, and mostly restores one of them."""
        model, log = self.model, self.model.log
        number = log.version
        built_on = any(one.version >= number for one in log.checkpoints)
        built_on |= model.making is not None and model.making.version >= number
        whole = number > model.first and all(map(model.place.has, log.versions[number - 1].files))
        if built_on or model.announced or not whole or not log.take_back():
            return
        model.place.remove(f"{LOG}{number:020d}.crc")
        able = self._able()
        if able and model.world.random.random() < 0.8:
            log.commit(**self._changes_to(model.world.random.choice(able)), operation="RESTORE")  # type: ignore[arg-type]
        else:
            log.commit(added=[log.data()])
        model.free -= log.versions[log.version].files
        model.world.seen["a commit was replaced by another of its version"] += 1

    # ---- checkpoints that cannot be used

    def _break_checkpoint(self) -> None:
        """A store has lost the end of one. Readers go back to the one before."""
        model, log = self.model, self.model.log
        name = f"{LOG}{log.version:020d}.checkpoint.parquet"
        if not model.place.has(name):
            data = delta_bytes.parquet([{"add": one.action()} for one in log.live.values()])
            model.place.put(name, data[: len(data) // 2])
            self._hint_now_and_then()

    def _half_checkpoint(self) -> None:
        """The writer of a checkpoint of two parts died after the first, which has half of the files."""
        model, log = self.model, self.model.log
        name = f"{LOG}{log.version:020d}.checkpoint.0000000001.0000000002.parquet"
        if not model.place.has(name):
            head = [{"protocol": delta_bytes.protocol(log.features)}, {"metaData": log.metadata()}]
            model.place.put(
                name, delta_bytes.parquet([*head, *({"add": one.action()} for one in [*log.live.values()][::2])])
            )
            self._hint_now_and_then()

    def _hint_now_and_then(self) -> None:
        if self.model.world.random.random() < 0.5:
            self.model.log.hint()
            self.model.hinted = self.model.log.version

    def _remove_checkpoint(self) -> None:
        """A person removes one that looks wrong: readers start from the one before, and need what comes behind it."""
        model = self.model
        able = [one for one in model.log.checkpoints if self._can_do_without(one)]
        if able:
            going = model.world.random.choice(able)
            model.log.checkpoints = self._others(going)
            for name in going.files:
                model.place.remove(name)
            model.world.seen["a person removed a checkpoint"] += 1

    def _can_do_without(self, going: Checkpoint) -> bool:
        model, has = self.model, self.model.place.has
        before = [
            one
            for one in self._others(going)
            if one.version <= min(model.first, going.version) and all(map(has, one.files))
        ]
        base = max((one.version for one in before), default=0)
        return all(has(f"{LOG}{number:020d}.json") for number in range(base, model.log.version + 1))

    def _others(self, going: Checkpoint) -> list[Checkpoint]:
        """Without those of the same files: one may have been written twice."""
        return [one for one in self.model.log.checkpoints if not {*one.files} & {*going.files}]

    # ---- Iceberg metadata beside the log

    def _iceberg_commit(self) -> None:
        """What was UniForm once, or a table of its own: it has the data files of the newest version."""
        self._iceberg_adds([one.path for one in self.model.log.live.values() if one.path and not one.vector])

    def _iceberg_takes_back(self) -> None:
        """It adds files again that no commit of the log has any more."""
        model = self.model
        live = model.log.versions[model.log.version].files
        names = [one for one in model.place.names() if one.endswith(".parquet") and not one.startswith(("_", "."))]
        dead = [one for one in names if one not in live and "/" not in one]
        if dead:
            self._iceberg_adds(dead)
            model.world.seen["Iceberg metadata takes dead files back"] += 1

    def _iceberg_expires(self) -> None:
        self.beside.snapshots = self.beside.snapshots[-1:]
        self._iceberg_adds([])

    def _iceberg_adds(self, names: list[str]) -> None:
        """Its next metadata file, with one snapshot more if there is something to add."""
        beside, place = self.beside, self.model.place
        beside.commits += 1
        if names:
            beside.snapshots = [*beside.snapshots, self._iceberg_snapshot(names)][-4:]
            beside.ever.update(names)
        document = {
            "format-version": 2,
            "table-uuid": "0d0e1a00-0000-4000-8000-000000000001",
            "location": place.address,
            "last-sequence-number": beside.commits,
            "last-updated-ms": place.ms(),
            "current-snapshot-id": beside.snapshots[-1].number if beside.snapshots else -1,
        }
        data = iceberg_bytes.metadata_json(document, [one.text for one in beside.snapshots])
        beside.current = place.put(f"metadata/{beside.commits:05d}-{place.uuid()}.metadata.json", data)

    def _iceberg_snapshot(self, names: list[str]) -> IcebergSnapshot:
        number, place = self.beside.commits, self.model.place
        rows = [
            iceberg_bytes.Entry(iceberg_bytes.ADDED, number, number, iceberg_bytes.DATA, f"{place.address}/{name}", 41)
            for name in names
        ]
        data = iceberg_bytes.manifest(2, False, rows)
        manifest = place.put(f"metadata/{place.uuid()}-m0.avro", data)
        listed = iceberg_bytes.ListedManifest(
            f"{place.address}/{manifest}", len(data), 0, number, number, len(names), 0, 0
        )
        name = place.put(f"metadata/snap-{number}-1-{place.uuid()}.avro", iceberg_bytes.manifest_list(2, [listed]))
        summary = {"operation": "append", "total-data-files": str(len(names))}
        text = iceberg_bytes.snapshot_json(number, None, number, place.ms(), f"{place.address}/{name}", summary)
        return IcebergSnapshot(number=number, text=text, data=frozenset(names), files=frozenset({manifest, name}))

    # ---- what stays

    def readers(self) -> Iterator[tuple[str, Mapping[str, Stored]]]:
        model = self.model
        for files in self.scans:
            yield "a query that runs", model.place.stored(name for name in files if name not in model.free)
        yield "Iceberg metadata beside the log", model.place.stored(self.beside.named())
