"""Writing a new snapshot: merge manifests, write lists, publish atomically, then the LATEST hint. A snapshot is
published by an atomic create of its file, so of several committers one wins. What was written before that goes again if
the commit fails before publishing. Once publishing was tried nothing is removed: the snapshot may be there although
nobody could say so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog

from lakesweep.formats import streams
from lakesweep.formats.inflate import parse_json
from lakesweep.formats.paimon import commit_files, manifests, merge, reader
from lakesweep.formats.paimon.commit_files import CommitDraft
from lakesweep.formats.paimon.files import TableFiles
from lakesweep.formats.paimon.lists import ListReader
from lakesweep.formats.paimon.manifests import ManifestMeta, ManifestRecord
from lakesweep.formats.paimon.merge import Entry, MergePlan, Standing
from lakesweep.formats.paimon.options import ManifestOptions
from lakesweep.formats.paimon.schema import FieldType, TableSchema
from lakesweep.formats.paimon.snapshots import KNOWN_FIELDS, MADE_FROM, PaimonSnapshot, named_as_base, parse_snapshot
from lakesweep.formats.spec import UnpublishedRemover
from lakesweep.model import errors
from lakesweep.model.refusal import RefusalCode
from lakesweep.ports.storage import Writer

_log = structlog.get_logger(__name__)

BATCH_IDENTIFIER = streams.NO_STREAM
"""The commit identifier of commits that belong to no stream."""

_HINT_WRITES = 5
"""How often the hint is written for a table that is rolled back under our eyes."""
_CARRIED = ("indexManifest", "watermark", "statistics", "nextRowId", "logOffsets")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What a commit is about."""

    kind: str
    """OVERWRITE or COMPACT."""
    delta: tuple[Entry, ...] = ()
    delta_shape: commit_files.Shape | None = None
    """The shape of the manifests that the delta's entries come from."""
    bytes_per_entry: float = 1.0
    index_entries: tuple[dict[str, Any], ...] | None = None
    """All index entries from now on; None when they stay as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOptions:
    """How a commit is written."""

    schema: TableSchema
    manifest: ManifestOptions

    @property
    def types(self) -> list[FieldType]:
        return [field.type for field in self.schema.partition_keys]


class Committer:
    """Commits to one table, on top of the snapshot it is given."""

    def __init__(self, files: TableFiles, lists: ListReader, writer: Writer, remover: UnpublishedRemover) -> None:
        self._files = files
        self._lists = lists
        self._writer = writer
        self._remover = remover

    async def commit(
        self, latest: PaimonSnapshot, changes: Changes, options: CommitOptions, now: datetime
    ) -> PaimonSnapshot | None:
        """Publish the snapshot after `latest`. Raises CommitConflict if somebody else was first, CommitUnknown if
        it is unknown. Returns None when there is nothing to publish: no change, and no manifest to merge."""
        if unknown := latest.document.keys() - KNOWN_FIELDS:
            fields = ", ".join(sorted(unknown))
            raise errors.Refused(
                RefusalCode.UNKNOWN_SNAPSHOT_VERSION,
                f"{latest.label} has unknown fields ({fields}): a commit on top of it would lose them",
            )
        before = await self._lists.records_of(latest)
        plan = await self._plan_merge(before, options)
        if not changes.delta and plan.empty:
            return None
        draft = CommitDraft(
            self._files,
            self._writer,
            types=options.types,
            list_shape=await self._list_shape(latest),
            options=options.manifest,
        )
        try:
            document = await self._prepare(draft, latest, plan=plan, changes=changes, options=options)
            # Whatever was decided by `now`: readers of `latest` have had it until this moment.
            document["timeMillis"] = int(max(now, await self._files.storage.now()).timestamp() * 1000)
            await self._check_stands(latest)
        except BaseException:
            await self._remover.remove_unpublished(draft.written)
            raise
        published = await self._publish(latest.id + 1, document)
        await self._check_still_stands(latest, published)
        await self._write_hint(published.id)
        return published

    async def _plan_merge(self, before: Sequence[ManifestRecord], options: CommitOptions) -> MergePlan:
        rules = options.manifest
        if merge.wants_full(before, rules):
            deleted: set[bytes] = set()
            for meta in before:
                if meta.deleted:
                    rows = (await self._lists.table(meta, ("kind", "partition"))).to_pylist()
                    deleted.update(row["partition"] for row in rows if row["kind"] == manifests.DELETE)
            plan = merge.plan_full(before, rules, deleted, options.types)
            if plan is not None:
                return plan
        return merge.plan_minor(before, rules)

    async def _prepare(
        self, draft: CommitDraft, latest: PaimonSnapshot, *, plan: MergePlan, changes: Changes, options: CommitOptions
    ) -> dict[str, Any]:
        base = [record for group in plan.groups for record in await self._merge(draft, group, options.manifest)]
        delta: list[dict[str, Any]] = []
        if changes.delta_shape is not None:
            entries = _stream(changes.delta)
            delta = await draft.write_manifests(changes.delta_shape, entries, bytes_per_entry=changes.bytes_per_entry)
        document = _new_document(latest, changes, options.schema, draft.token)
        document["baseManifestList"], document["baseManifestListSize"] = await draft.write_list(base)
        document["deltaManifestList"], document["deltaManifestListSize"] = await draft.write_list(delta)
        if changes.index_entries is not None:
            del document["indexManifest"]
            if changes.index_entries:
                shape = commit_files.shape_of(await self._files.read(self._files.manifest(str(latest.index_manifest))))
                document["indexManifest"] = await draft.write_index(shape, changes.index_entries)
        if latest.statistics and not await self._statistics_stay(latest.statistics, options.schema):
            del document["statistics"]
        return document

    async def _merge(
        self, draft: CommitDraft, group: Sequence[ManifestRecord], rules: ManifestOptions
    ) -> list[dict[str, Any]]:
        if len(group) == 1:
            return [dict(group[0].document)]
        standing, found = Standing(), []
        for meta in group:
            data = await self._lists.read_manifest(meta)
            found.append(commit_files.shape_of(data))
            columns = ("kind", *manifests.IDENTITY)
            table = await asyncio.to_thread(manifests.read_columns, data, columns, expected=meta.entries)
            standing.feed(meta.name, ((row["kind"], manifests.identity(row)) for row in table.to_pylist()))
        whole = standing.left_whole([meta for meta in group if not merge.must_change(meta, rules)])
        rewritten = [meta for meta in group if meta not in whole]
        size = sum(meta.size_bytes for meta in rewritten) / max(1, sum(meta.entries for meta in rewritten))
        merged = await draft.write_manifests(
            commit_files.joined(found), self._left(rewritten, standing), bytes_per_entry=size
        )
        _check_all_there(standing, whole, merged)
        return [*(dict(meta.document) for meta in whole), *merged]

    async def _left(self, metas: Sequence[ManifestMeta], standing: Standing) -> AsyncIterator[Entry]:
        for meta in metas:
            data = await self._lists.read_manifest(meta)
            entries = await asyncio.to_thread(manifests.read_entries, data, expected=meta.entries)
            for index, entry in enumerate(entries):
                if standing.keeps(meta.name, index, entry):
                    yield entry

    async def _list_shape(self, latest: PaimonSnapshot) -> commit_files.Shape:
        locations = [self._files.manifest(name) for name in (latest.delta_list, latest.base_list)]
        return commit_files.joined([commit_files.shape_of(await self._files.read(location)) for location in locations])

    async def _statistics_stay(self, name: str, schema: TableSchema) -> bool:
        """Statistics of another schema are not those of the new snapshot."""
        try:
            document = parse_json(await self._files.read(self._files.at("statistics", name)))
        except (errors.NotFound, ValueError):
            return False
        return isinstance(document, dict) and document.get("schemaId") == schema.id

    async def _check_stands(self, latest: PaimonSnapshot) -> None:
        """A rollback may have taken it and a commit its id since: on top of it, ours would undo both. And a branch that
        the table has become may begin with a later id than the next one."""
        if reader.numbers(await self._files.names("snapshot"), "snapshot")[-1:] != [latest.id]:
            raise errors.CommitConflict(f"{latest.location} is no longer the newest")
        if not await reader.still_stands(self._files, latest):
            raise errors.CommitConflict(f"{latest.location} was rolled back")

    async def _check_still_stands(self, latest: PaimonSnapshot, published: PaimonSnapshot) -> None:
        """No store can make a create conditional on another object, so a rollback may come in between. The hint still
        leads readers to where it went: ours must not lead them away from there."""
        if not await reader.still_stands(self._files, latest):
            raise errors.Indeterminate(misplaced(published))

    async def _publish(self, snapshot_id: int, document: dict[str, Any]) -> PaimonSnapshot:
        location = self._files.at("snapshot", f"snapshot-{snapshot_id}")
        data = json.dumps(document, indent=2).encode()
        trouble: errors.StorageError | None = None
        try:
            await self._writer.put(location, data, create_only=True)
        except errors.StorageError as exc:
            trouble = exc
        try:
            stored = await self._files.read(location)
        except errors.NotFound as exc:
            raise errors.CommitUnknown(f"{location} is missing right after it was written: {trouble or exc}") from exc
        except errors.StorageError as exc:
            raise errors.CommitUnknown(f"it is unknown whether {location} was committed: {exc}") from exc
        if stored == data:
            return parse_snapshot(data, location)
        if trouble is None or isinstance(trouble, errors.AlreadyThere):
            raise errors.CommitConflict(f"{location} was committed by somebody else")
        raise errors.CommitUnknown(f"{location} is not ours, and our write failed: {trouble}") from trouble

    async def _write_hint(self, snapshot_id: int) -> None:
        """For other readers. A hint that cannot be written is no failed commit. A rollback that took the snapshot wrote
        its own hint before ours, and others cannot read a table whose hint names a snapshot that is gone."""
        hint = self._files.at("snapshot", "LATEST")
        try:
            for _ in range(_HINT_WRITES):
                await self._writer.put(hint, str(snapshot_id).encode(), create_only=False)
                numbers = reader.numbers(await self._files.names("snapshot"), "snapshot")
                if not numbers or snapshot_id in numbers:
                    return
                snapshot_id = numbers[-1]
        except errors.StorageError as exc:
            _log.warning("hint_not_written", hint="LATEST", why=str(exc))


def misplaced(ours: PaimonSnapshot) -> str:
    """What a person has to know of a commit of ours that hides a rollback."""
    return (
        f"the table was rolled back while Lakesweep committed {ours.label}, which does not follow the snapshot that it "
        "was made from. Nothing is deleted until a person decides. To keep the rollback, delete "
        f"{ours.location} and write the number of the snapshot before it into snapshot/LATEST. To keep the commit, "
        f"write {ours.id} into snapshot/LATEST and expire every snapshot before it"
    )


def pending_without_base(ours: PaimonSnapshot, newest: PaimonSnapshot) -> str:
    """What a person has to know of a commit of ours that may hide a rollback or a loss of all other snapshots."""
    return (
        f"Lakesweep committed {ours.label}, the snapshot that it was made from is gone, and snapshot/LATEST names "
        f"neither {ours.label} nor a later one: the table was rolled back or lost its snapshots during the commit, or "
        f"the hint was changed. Nothing is deleted until a person decides. If readers find the table as it should be, "
        f"write {newest.id} into snapshot/LATEST. If it was rolled back or lost snapshots, restore those before "
        f"the commit and delete {ours.location}"
    )


def _new_document(latest: PaimonSnapshot, changes: Changes, schema: TableSchema, token: str) -> dict[str, Any]:
    """The new snapshot without its manifest lists and its time. `operation` stays unset: TRUNCATE on a part of a
    table misleads later readers."""
    carried = (*_CARRIED, *(("properties",) if changes.kind == "COMPACT" else ()))
    document = {field: latest.document[field] for field in carried if latest.document.get(field) is not None}
    rows = sum(entry["_FILE"]["_ROW_COUNT"] * (1 if entry["_KIND"] == manifests.ADD else -1) for entry in changes.delta)
    return document | {
        "version": 3,
        "id": latest.id + 1,
        "schemaId": schema.id,
        "commitUser": f"lakesweep-{token}",
        "commitIdentifier": BATCH_IDENTIFIER,
        "commitKind": changes.kind,
        "totalRecordCount": (latest.document.get("totalRecordCount") or 0) + rows,
        "deltaRecordCount": rows,
        "uuid": token,
        "properties": {**document.get("properties", {}), MADE_FROM: named_as_base(latest)},
    }


def _check_all_there(standing: Standing, whole: Sequence[ManifestMeta], merged: Sequence[Mapping[str, Any]]) -> None:
    """An entry that got lost on the way would be a live file that nobody knows any more."""
    written = sum(record["_NUM_ADDED_FILES"] + record["_NUM_DELETED_FILES"] for record in merged)
    found = written + sum(meta.added for meta in whole)
    if found != len(standing):
        raise ValueError(f"{len(standing)} entries are left of merged manifests, but {found} were written")


async def _stream(entries: Sequence[Entry]) -> AsyncIterator[Entry]:
    for entry in entries:
        yield entry
