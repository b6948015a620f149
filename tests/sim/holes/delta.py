"""Holes in what is Delta's own: tombstones, checkpoints, the walk through the log, deletion vectors."""

from __future__ import annotations

from tests.sim.mutants import body, edit, hole

_D = "delta"
_TAIL = "lakesweep.formats.delta.state"
_FILES = "lakesweep.formats.delta.files"
_LOAD = "lakesweep.formats.delta.load"
_TABLE = "lakesweep.formats.delta.table"
_VIEW = "lakesweep.formats.delta.view"
_RETENTION = "lakesweep.formats.delta.retention"
_EXPIRE = "lakesweep.formats.delta.expire"
_DECODE = "lakesweep.formats.delta.checkpoint"
_STATE = "lakesweep.formats.delta.state"
_LAYOUT = "lakesweep.formats.delta.layout"

HOLES = (
    hole(
        "delta-removed-goes-at-once",
        "A removed file is deleted without waiting for the retention of removed files.",
        _D,
        edit(
            _STATE,
            "DeltaState.delete_before_ms",
            "self.as_of - max(floor, self.properties.deleted_file_retention)",
            "self.as_of",
        ),
    ),
    hole(
        "delta-retention-below-a-day",
        "A table whose retention was left at zero loses files under running readers.",
        _D,
        edit(
            _STATE,
            "DeltaState.delete_before_ms",
            "max(floor, self.properties.deleted_file_retention)",
            "self.properties.deleted_file_retention",
        ),
    ),
    hole(
        "delta-tombstones-of-commits-forgotten",
        "What commits behind the checkpoint removed lately protects nothing.",
        _D,
        edit(
            _TAIL,
            "Tail.tolerated",
            "return sorted({*files.addresses(removed).to_pylist(), *files.aliases(kept).to_pylist()})",
            "return sorted(set(files.aliases(kept).to_pylist()))",
        ),
    ),
    hole(
        "delta-tombstones-of-checkpoints-forgotten",
        "Removes in a checkpoint protect nothing.",
        _D,
        edit(_DECODE, "_from_actions", "[files.addresses(gone), files.aliases(kept)]", "[files.aliases(kept)]"),
        profile="queries that run for long",
    ),
    hole(
        "delta-forgotten-tombstones",
        "A removed file whose tombstone the newest checkpoint has dropped is deleted too early.",
        _D,
        edit(
            _LOAD,
            "LogReader._load",
            "removed = await self.other_commits.removed_since(listing, below, state.delete_before_ms())",
            "removed = files.none()",
        ),
        profile="short retentions",
    ),
    hole(
        "delta-undated-removes-are-old",
        "A remove that does not say when it was made counts as made in 1970.",
        _D,
        body(_FILES, "dated", "return table"),
    ),
    hole(
        "delta-vectors-go",
        "Files of deletion vectors are not references.",
        _D,
        edit(
            _FILES,
            "addresses",
            'return pa.concat_arrays([data, pc.unique(table.column("vector")).drop_null()])',
            "return data",
        ),
    ),
    hole(
        "delta-vector-serves-one",
        "A file of deletion vectors is deleted when one of its data files is removed.",
        _D,
        edit(_LOAD, "LogReader.overruled", "held.update(found.to_pylist())", "pass"),
    ),
    hole(
        "delta-vector-is-no-key",
        "An add with a new deletion vector and the remove of the old one are taken for the same file.",
        _D,
        body(_FILES, "_key", "return spelled"),
        body(_FILES, "_keys_with_vectors", "return spelled"),
    ),
    hole(
        "delta-first-action-wins",
        "Of several actions on a file the first one counts.",
        _D,
        edit(
            _TAIL,
            "Tail.replay",
            "last = dict(zip(keys.take(numbers).to_pylist(), numbers.to_pylist(), strict=True))",
            "last = dict(reversed(list(zip(keys.take(numbers).to_pylist(), numbers.to_pylist(), strict=True))))",
        ),
    ),
    hole(
        "delta-added-again-is-dead",
        "A file that was removed and added again stays released.",
        _D,
        edit(_TAIL, "Tail.removed", "gone.filter(pc.invert(pc.is_in(gone, live)))", "gone"),
        edit(_TAIL, "Tail.live", "self._last(removed=False)", "self._last(removed=False).slice(0, 0)"),
    ),
    hole(
        "delta-encoded-paths",
        "Paths in the log are not decoded.",
        _D,
        body(_FILES, "_decoded", "return spelled"),
        edit("lakesweep.formats.delta.paths", "resolve", 'text = unquote(spelled, errors="strict")', "text = spelled"),
    ),
    hole(
        "delta-absolute-paths",
        "An absolute path that may mean a file below the root keeps nothing.",
        _D,
        body("lakesweep.formats.delta.paths", "_aliases", "return ()"),
    ),
    hole(
        "delta-unpublished-commits",
        "Files are deleted that a commit names which is written under a temporary name and counts already.",
        _D,
        body("lakesweep.formats.delta.other_commits", "OtherCommits.unpublished", "return frozenset()"),
        profile="commits that are announced",
    ),
    hole(
        "delta-published-just-now",
        "A commit under a temporary name that is published when it is to be read counts as none.",
        _D,
        edit("lakesweep.formats.delta.other_commits", "OtherCommits.unpublished", "if None in found:", "if False:"),
        beyond="story `delta` 10008459 finds it, which is always run, and none of the first 2,000",
    ),
    hole(
        "delta-iceberg-beside",
        "Files that Iceberg metadata in the table's directory names are deleted.",
        _D,
        body(_VIEW, "DeltaView._named_by_iceberg", "return frozenset()"),
        profile="Iceberg beside the log",
    ),
    hole(
        "delta-head-is-the-version",
        "What Iceberg commits beside the log does not move the head.",
        _D,
        edit(_TABLE, "DeltaTable._head_of", "newest.modified_ms, beside)", "newest.modified_ms, [])"),
        profile="Iceberg beside the log",
    ),
    hole(
        "delta-log-goes-too-early",
        "Log files are deleted before the log's retention is over.",
        _D,
        edit(
            _RETENTION,
            "boundaries",
            "if buffered is not None and (max(youngest_ms, buffered[1]) > cutoff_ms or buffered[0] > max_version):",
            "if buffered is not None and buffered[0] > max_version:",
        ),
    ),
    hole(
        "delta-borrowed-times",
        "A log file with an older time than the one before it is judged by its own time.",
        _D,
        edit(
            _RETENTION,
            "boundaries",
            "adjusted = previous is not None and previous[0] < version and previous[1] >= time",
            "adjusted = False",
        ),
        edit(_RETENTION, "boundaries", "max(youngest_ms, buffered[1]) > cutoff_ms", "buffered[1] > cutoff_ms"),
        profile="commits that look old",
    ),
    hole(
        "delta-last-commit-decides",
        "A young commit is deleted if the one after it looks old and a checksum or checkpoint is between them.",
        _D,
        edit(_RETENTION, "boundaries", "max(youngest_ms, buffered[1]) > cutoff_ms", "buffered[1] > cutoff_ms"),
        beyond="`tests/unit/delta/test_walk.py` finds it, and none of the first 2,000 stories",
    ),
    hole(
        "delta-in-commit-times-ignored",
        "Where commits tell their own time, the time of the file decides all the same.",
        _D,
        edit(
            _RETENTION,
            "Inspected.allows",
            "return self.usable and (self.newest_released_ms is None or self.newest_released_ms <= cutoff_ms)",
            "return self.usable",
        ),
        profile="commits that look old",
    ),
    hole(
        "delta-checkpoint-not-opened",
        "The log begins with a checkpoint that nobody has opened.",
        _D,
        edit(
            _LOAD, "LogReader._look_at", "return Inspected(usable=False, why=exc.why)", "return Inspected(usable=True)"
        ),
        profile="damaged checkpoints",
    ),
    hole(
        "delta-half-checkpoints",
        "A checkpoint of which parts are missing counts as whole.",
        _D,
        edit(
            "lakesweep.formats.delta.log",
            "_checkpoint",
            "complete=whole and all(file.size_bytes > 0 for file in files)",
            "complete=True",
        ),
        profile="damaged checkpoints",
    ),
    hole(
        "delta-boundary-goes-too",
        "The commit of the version that the log begins with is deleted, too.",
        _D,
        edit(
            _RETENTION,
            "_goes",
            "case LogKind.COMMIT | LogKind.CHECKSUM | LogKind.STAGED:\n            return file.version < boundary",
            "case LogKind.COMMIT | LogKind.CHECKSUM | LogKind.STAGED:\n            return file.version <= boundary",
        ),
    ),
    hole(
        "delta-log-cleanup-switched-off",
        "delta.enableExpiredLogCleanup = false is ignored.",
        _D,
        edit(
            "lakesweep.formats.delta.protocol",
            "properties",
            'log_cleanup_enabled=_read(metadata, "delta.enableExpiredLogCleanup", "true", _boolean),',
            "log_cleanup_enabled=True,",
        ),
    ),
    hole(
        "delta-all-old-sidecars-go",
        "Old sidecars are deleted although a checkpoint that stays names them.",
        _D,
        edit(
            _VIEW,
            "DeltaView._free_sidecars",
            "for name, _ in head.sidecars:\n                old.pop(name, None)",
            "pass",
        ),
    ),
    hole(
        "delta-young-sidecars-go",
        "Sidecars of a checkpoint that is being written are deleted.",
        _D,
        edit(
            _VIEW,
            "DeltaView._free_sidecars",
            "file.modified_ms is not None and file.modified_ms < cutoff_ms",
            "file.modified_ms is not None",
        ),
    ),
    hole(
        "delta-sidecars-unread",
        "What the sidecars of the newest checkpoint name is not read.",
        _D,
        edit(
            _STATE,
            "OpenedCheckpoint.files",
            "return (*self.checkpoint.files, *self.sidecars)",
            "return self.checkpoint.files",
        ),
    ),
    hole(
        "delta-parts-unread",
        "Only the first part of a checkpoint is read.",
        _D,
        edit(
            _VIEW,
            "DeltaView._sources",
            "for file in (opened.files if opened else ())",
            "for file in (opened.files[:1] if opened else ())",
        ),
    ),
    hole(
        "delta-gaps-in-the-log",
        "A log with a commit missing in the middle is read as if nothing were missing.",
        _D,
        body("lakesweep.formats.delta.log", "first_gap", "return None"),
        edit(
            _LOAD,
            "LogReader._segment",
            "[listing.commits[v] for v in range(first, latest + 1)]",
            "[listing.commits[v] for v in range(first, latest + 1) if v in listing.commits]",
        ),
        profile="logs from a backup",
    ),
    hole(
        "delta-log-set-back",
        "After a log was set back to a backup, the files of its lost commits are deleted.",
        _D,
        edit(
            _LOAD,
            "LogReader._load",
            "if last_checkpoint is not None and last_checkpoint > listing.latest_version:",
            "if False:",
        ),
        edit("lakesweep.cleanup.table_notes", "set_back", "if seen <= state.position:", "if True:"),
        profile="logs from a backup",
    ),
    hole(
        "delta-set-back-to-no-checkpoint",
        "That the log ends before what an earlier run saw stops nothing.",
        _D,
        edit("lakesweep.cleanup.table_notes", "set_back", "if seen <= state.position:", "if True:"),
        profile="logs from a backup",
    ),
    hole(
        "delta-unknown-features",
        "A table with a feature that nobody here knows is cleaned.",
        _D,
        body("lakesweep.formats.delta.protocol", "check", "return None"),
    ),
    hole(
        "delta-nested-table",
        "Another Delta table's log below this table's root is not recognised.",
        _D,
        body(_VIEW, "DeltaView.foreign_owner", "return None"),
    ),
    hole(
        "delta-next-commit-unseen",
        "The head is asked for by looking at the newest commit alone, never for the next one.",
        _D,
        edit(
            _TABLE,
            "DeltaTable._is_unchanged",
            "if await reads.is_there(self._storage, following):",
            "if False:",
        ),
        edit(
            _TABLE,
            "DeltaTable._is_unchanged",
            "if found is None or after is not None:",
            "if found is None:",
        ),
        profile="dead files of the log come back",
    ),
    hole(
        "delta-replaced-commit-unseen",
        "That the newest commit was replaced by another of the same version is not seen.",
        _D,
        edit(
            _TABLE,
            "DeltaTable._is_unchanged",
            "return found.size_bytes == newest.size_bytes and _same_time(found.modified_at, newest.modified_ms)",
            "return True",
        ),
        profile="dead files of the log come back",
    ),
    hole(
        "delta-ground-gone",
        "Log files are deleted although the checkpoint that the log is to begin with no longer exists.",
        _D,
        body(_TABLE, "DeltaTable._check_ground", "return None"),
        profile="damaged checkpoints",
    ),
    hole(
        "delta-unlisted-commit",
        "A next commit that can be read but is not listed stops nothing.",
        _D,
        edit(_LOAD, "LogReader.listing", "if await reads.is_there(self._storage, following):", "if False:"),
        profile="commits that are not listed",
    ),
    hole(
        "delta-damaged-count",
        "Fewer live files than the table's own count stop nothing.",
        _D,
        edit(
            "lakesweep.cleanup.guards",
            "_check_view",
            "if state.counted_files is not None and plan.references < state.counted_files:",
            "if False:",
        ),
        edit(_LOAD, "LogReader._read", "if len(data) != file.size_bytes:", "if False:"),
    ),
    hole(
        "delta-cut-files-believed",
        "A checkpoint or commit of another length than the one that was listed is believed.",
        _D,
        edit(_LOAD, "LogReader._read", "if len(data) != file.size_bytes:", "if False:"),
        edit(_DECODE, "decode", "if source.size_bytes is not None and len(data) != source.size_bytes:", "if False:"),
    ),
    hole(
        "delta-change-data-is-hidden-no-more",
        "Files of change data are deleted without waiting for their age.",
        _D,
        edit(
            "lakesweep.cleanup.classify",
            "_decide",
            "return Verdict.ORPHAN if old else Verdict.YOUNG",
            'return Verdict.ORPHAN if old or kind.kind == "change_data" else Verdict.YOUNG',
        ),
    ),
    hole(
        "delta-streams-unseen",
        "No action of the log shows a stream.",
        _D,
        edit(
            "lakesweep.formats.delta.actions",
            "_Collected.take",
            'self.stream = streams.of_application(action.get("appId"))',
            "pass",
        ),
        edit(
            "lakesweep.formats.delta.actions",
            "_Collected.take",
            'self.stream = self.stream or streams.of_operation(action.get("operation"))',
            "pass",
        ),
        edit(
            "lakesweep.formats.delta.checkpoint", "read_head", 'stream = streams.of_application(row["appId"])', "pass"
        ),
    ),
    hole(
        "delta-clone-s-source-cleaned",
        "has_shallow_clones does not keep data files.",
        _D,
        edit(_LAYOUT, "DeltaLayout.classify", "return _KEPT_DATA if self.keep_data else _DATA", "return _DATA"),
        edit(
            _LAYOUT,
            "DeltaLayout._looked_at",
            "return FileKind(kind=kind, reserved=self.keep_data)",
            "return FileKind(kind=kind)",
        ),
        profile="clones that nobody here knows",
    ),
    hole(
        "delta-lite-believes-the-log",
        "A lite vacuum takes what a commit removed although a later one added it again.",
        _D,
        edit(_VIEW, "DeltaView.references", "*(live if table.lite else ()),", ""),
        profile="vacuums by the log alone",
    ),
    hole(
        "delta-oddly-named-go",
        "Files without one of Delta's endings are deleted although no expired remove names them.",
        _D,
        edit(
            _LAYOUT,
            "DeltaLayout._looked_at",
            'kind = _data_kind(segments) or ("data" if path in self.freed else None)',
            'kind = _data_kind(segments) or "data"',
        ),
    ),
)
