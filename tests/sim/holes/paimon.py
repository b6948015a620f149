"""Holes in what is Paimon's own: what protects files, closing first, commits of our own, partitions."""

from __future__ import annotations

from tests.sim.mutants import body, edit, hole

_P = "paimon"
_READER = "lakesweep.formats.paimon.reader"
_NEEDS = "lakesweep.formats.paimon.state"
_REFERENCES = "lakesweep.formats.paimon.references"
_RETENTION = "lakesweep.formats.paimon.retention"
_EXPIRY = "lakesweep.formats.paimon.retention"
_TABLE = "lakesweep.formats.paimon.table"
_VIEW = "lakesweep.formats.paimon.view"
_COMMIT = "lakesweep.formats.paimon.commit"
_DROP = "lakesweep.formats.paimon.drop"
_PARTITIONS = "lakesweep.formats.paimon.partitions"
_STATE = "lakesweep.formats.paimon.state"
_LAYOUT = "lakesweep.formats.paimon.layout"
_DECODE = "lakesweep.formats.paimon.decode"
_RELEASED = "lakesweep.formats.paimon.state"

_ROOTS = "for snapshot in (*state.snapshots, *state.log.branched, *state.log.tags, *state.changelogs):"

HOLES = (
    hole(
        "paimon-tags-do-not-protect",
        "Files that only a tag needs go.",
        _P,
        edit(_NEEDS, "retained_roots", _ROOTS, _ROOTS.replace(", *state.log.tags", "")),
    ),
    hole(
        "paimon-branches-do-not-protect",
        "Files that only a branch needs go.",
        _P,
        edit(_NEEDS, "retained_roots", _ROOTS, _ROOTS.replace(", *state.log.branched", "")),
    ),
    hole(
        "paimon-changelogs-do-not-protect",
        "Files that only a long-lived changelog needs go.",
        _P,
        edit(_NEEDS, "retained_roots", _ROOTS, _ROOTS.replace(", *state.changelogs", "")),
    ),
    hole(
        "paimon-latest-snapshot-only",
        "Only the latest snapshot protects files.",
        _P,
        edit(_NEEDS, "retained_roots", _ROOTS, _ROOTS.replace("*state.snapshots", "*state.snapshots[-1:]")),
    ),
    hole(
        "paimon-consumers-do-not-count",
        "Snapshots that a consumer has still to read expire.",
        _P,
        edit(_RETENTION, "_protected", "if following <= snapshot_id:", "if False:"),
        body(_STATE, "PaimonState.readers_of", "return []"),
    ),
    hole(
        "paimon-consumer-came-since",
        "A consumer that appears after the plan does not take its snapshots back.",
        _P,
        body(_STATE, "PaimonState.readers_of", "return []"),
        profile="snapshots that were to go come back",
    ),
    hole(
        "paimon-minimum-ignored",
        "snapshot.num-retained.min does not count.",
        _P,
        edit(_RETENTION, "_protected", "if snapshot_id > latest_id - rules.num_min:", "if False:"),
    ),
    hole(
        "paimon-time-ignored",
        "snapshot.time-retained does not count.",
        _P,
        edit(_RETENTION, "_young", "if newest >= cutoff_millis else None", "if newest < 0 else None"),
    ),
    hole(
        "paimon-age-from-the-commit",
        "A snapshot's age counts from its commit, not from when it was replaced.",
        _P,
        edit(
            _RETENTION,
            "_young",
            "newest = max(snapshot.time_millis, following.time_millis if following else snapshot.time_millis)",
            "newest = snapshot.time_millis",
        ),
    ),
    hole(
        "paimon-limit-ignored",
        "More snapshots go at one time than snapshot.expire.limit allows.",
        _P,
        body(_RETENTION, "_out_of_turn", "return None"),
        beyond="how many go at once costs no reader anything",
    ),
    hole(
        "paimon-stream-commits-expire",
        "The newest snapshot of a stream expires like any other.",
        _P,
        body(_EXPIRY, "_newest_of_streams", "return {}"),
        profile="streams",
    ),
    hole(
        "paimon-streams-unseen",
        "No commit shows a stream.",
        _P,
        body("lakesweep.formats.streams", "of_commit", "return None"),
    ),
    hole(
        "paimon-deltas-of-streams-go",
        "Where changelogs outlive their snapshots and nothing produces them, what a delta deletes goes.",
        _P,
        edit(_NEEDS, "_root", "diff = without_producer and snapshot.changelog_list is None", "diff = False"),
    ),
    hole(
        "paimon-deltas-add-only",
        "Of a delta that streams read, only what it adds stays.",
        _P,
        edit(_DECODE, "_file_names", "if source.kind != DIFF:", "if True:"),
        edit(
            _REFERENCES,
            "ReferenceReader.collect",
            "gathered.tolerated.update(dict.fromkeys(sorted(released & streamed)))",
            "pass",
        ),
    ),
    hole(
        "paimon-changelog-files-go",
        "The changelog files of a retained snapshot go.",
        _P,
        edit(
            _REFERENCES,
            "ReferenceReader._kept_parts",
            "if snapshot.changelog_list and root.changelog is Presence.REQUIRED:",
            "if False:",
        ),
        edit(
            _REFERENCES,
            "ReferenceReader._kept_parts",
            "loose = snapshot.changelog_list if root.changelog is Presence.IF_THERE else None",
            "loose = None",
        ),
    ),
    hole(
        "paimon-delta-list-unread",
        "What the newest commit of a snapshot added is not read.",
        _P,
        edit(
            "lakesweep.formats.paimon.lists",
            "ListReader.manifests_of",
            "found = (*base, *await self.manifest_list(snapshot, snapshot.delta_list))",
            "found = base",
        ),
    ),
    hole(
        "paimon-index-files-go",
        "Index manifests and the files that they name go.",
        _P,
        edit(
            _REFERENCES,
            "ReferenceReader._add_direct",
            "if parts.whole and snapshot.index_manifest:",
            "if parts.whole and snapshot.index_manifest and not retained:",
        ),
    ),
    hole(
        "paimon-statistics-go",
        "The statistics of a retained snapshot go.",
        _P,
        edit(
            _REFERENCES,
            "ReferenceReader._add_direct",
            "if parts.whole and snapshot.statistics:",
            "if parts.whole and snapshot.statistics and not retained:",
        ),
    ),
    hole(
        "paimon-extra-files-go",
        "Files that belong to a data file (its index) go.",
        _P,
        edit(
            _DECODE,
            "_file_names",
            '*table.column("name").chunks, *extra, _NO_NAMES',
            '*table.column("name").chunks, _NO_NAMES',
        ),
    ),
    hole(
        "paimon-deleted-once-is-dead",
        "A file that one snapshot has deleted goes although another one has it live.",
        _P,
        edit(
            _DECODE,
            "live_names",
            "found.update(name for spelled in standing.values() for name in spelled)",
            "found = {name for spelled in standing.values() for name in spelled}",
        ),
    ),
    hole(
        "paimon-level-is-no-identity",
        "A file that a compaction moves to another level is taken for deleted.",
        _P,
        edit(
            "lakesweep.formats.paimon.manifests",
            "",
            'IDENTITY = ("partition", "bucket", "level", "name", "extra", "embedded", "external")',
            'IDENTITY = ("partition", "bucket", "name", "extra", "embedded", "external")',
        ),
        edit(
            _DECODE,
            "live_names",
            "            for change in changes.get(manifest, ()):",
            "            for change in sorted(changes.get(manifest, ()), key=lambda one: not one.added):",
        ),
    ),
    hole(
        "paimon-data-before-the-snapshot",
        "Data files go while the snapshot that names them can still be opened.",
        _P,
        edit(
            _LAYOUT,
            "_in_log",
            "stage=min(SNAPSHOT_STAGE + number, _LAST_SNAPSHOT_STAGE)",
            "stage=LIST_STAGE + 1 + number",
        ),
    ),
    hole(
        "paimon-newest-snapshot-first",
        "Of several expired snapshots the newest goes first.",
        _P,
        edit(
            _LAYOUT,
            "_in_log",
            "stage=min(SNAPSHOT_STAGE + number, _LAST_SNAPSHOT_STAGE)",
            "stage=_LAST_SNAPSHOT_STAGE - number",
        ),
    ),
    hole(
        "paimon-open-snapshot-gutted",
        "A snapshot whose own file could not be deleted loses its data.",
        _P,
        edit(
            _TABLE,
            "PaimonTable.closed",
            "back = self.released.take_back((role, one.name) for role in roles for one in listed[role])",
            "back = []",
        ),
    ),
    hole(
        "paimon-closed-and-needed",
        "That a consumer wants a snapshot which this run has closed stops nothing.",
        _P,
        body(_RELEASED, "ReleasedSnapshots.check_not_needed", "return None"),
        profile="snapshots that were to go come back",
    ),
    hole(
        "paimon-newest-again-goes",
        "A snapshot that was to go, and was rolled back to and committed upon during the run, goes.",
        _P,
        body(_RELEASED, "ReleasedSnapshots.keep_if_rolled_back", "return None"),
        profile="snapshots that were to go come back",
    ),
    hole(
        "paimon-rolled-back-to-nothing",
        "A rollback to a snapshot that this run was closing leaves a table without any.",
        _P,
        body(_TABLE, "PaimonTable._put_back", "return None"),
        profile="rollbacks to what is being deleted",
    ),
    hole(
        "paimon-nothing-put-back-after-a-kill",
        "A process that died while somebody rolled back to what it was deleting leaves a table without a snapshot.",
        _P,
        body("lakesweep.cleanup.cycle", "Cycle._reopen", "return None"),
        profile="rollbacks to what is being deleted",
    ),
    hole(
        "paimon-more-than-offered",
        "Snapshots are given up whose files nobody has looked at.",
        _P,
        edit(_TABLE, "PaimonTable.commit_expiry", "if self.offered is not None:", "if False:"),
        beyond="what was not looked at is not among the plan's files, so giving it up only delays its files",
    ),
    hole(
        "paimon-latest-may-expire",
        "After a rollback the snapshot that became the latest expires by the old plan.",
        _P,
        edit(_EXPIRY, "resolve", "and snapshot is not state.latest", ""),
        edit(
            _STATE,
            "PaimonState._standing",
            "if snapshot.key not in self.released or snapshot is self.latest or self.is_to_be_read(snapshot):",
            "if snapshot.key not in self.released or self.is_to_be_read(snapshot):",
        ),
    ),
    hole(
        "paimon-ids-are-identities",
        "A snapshot that uses the id of one that was rolled back is taken for it.",
        _P,
        edit(
            _EXPIRY,
            "resolve",
            "wanted = {(snapshot.id, snapshot.committed_at) for snapshot in plan.expire}",
            "wanted = {snapshot.id for snapshot in plan.expire}",
        ),
        edit(
            _EXPIRY,
            "resolve",
            "if (_model_id(snapshot), snapshot.committed_at) in wanted",
            "if _model_id(snapshot) in wanted",
        ),
        edit("lakesweep.formats.paimon.snapshots", "PaimonSnapshot.key", "@{self.identity}", ""),
        profile="snapshots that were to go come back",
    ),
    hole(
        "paimon-changelog-not-left",
        "A snapshot expires without leaving the changelog behind that is to outlive it.",
        _P,
        body(_TABLE, "PaimonTable._leave_changelogs", "return frozenset(one.id for one in snapshots)"),
    ),
    hole(
        "paimon-partition-by-our-own-zone",
        "A partition goes when it has expired by the wall clock of this service.",
        _P,
        edit(_PARTITIONS, "find_due", "if _before(moment, everywhere) or _is_instant(keys, expiry):", "if True:"),
        profile="partitions that expire",
    ),
    hole(
        "paimon-partition-written-to-again",
        "A partition that a writer came back to since it was found due is dropped.",
        _P,
        edit(
            _DROP,
            "drop_partitions",
            "going = tuple(partition for partition in wanted if partition.raw in due)",
            "going = tuple(wanted)",
        ),
        profile="partitions that expire",
    ),
    hole(
        "paimon-wrong-partition-dropped",
        "Dropping one partition drops the files of all.",
        _P,
        edit(_DROP, "_entries_of", 'if entry["_PARTITION"] in partitions', ""),
    ),
    hole(
        "paimon-commit-over-a-rollback",
        "Our commit goes on top of a snapshot that was rolled back.",
        _P,
        body(_COMMIT, "Committer._check_stands", "return None"),
        profile="commits of our own that are overtaken",
    ),
    hole(
        "paimon-hidden-rollback-forgotten",
        "A commit of ours that does not follow the snapshot it was made from stops nothing.",
        _P,
        body("lakesweep.formats.paimon.snapshots", "first_misplaced", "return None"),
        edit(
            _COMMIT,
            "Committer.commit",
            "await self._check_still_stands(latest, published)\n        await self._write_hint(published.id)",
            "pass",
        ),
        profile="commits of our own that are overtaken",
    ),
    hole(
        "paimon-hint-over-a-rollback",
        "The hint leads readers to a commit of ours that hides a rollback.",
        _P,
        body(_COMMIT, "Committer._check_still_stands", "return None"),
        profile="commits of our own that are overtaken",
    ),
    hole(
        "paimon-hint-to-nothing",
        "After a rollback of our commit its hint names a snapshot that is gone.",
        _P,
        edit(_COMMIT, "Committer._write_hint", "for _ in range(_HINTS):", "for _ in range(1):"),
        profile="commits of our own that are overtaken",
    ),
    hole(
        "paimon-commit-into-a-gap",
        "Our commit takes an id before that of the newest snapshot.",
        _P,
        edit(
            _COMMIT,
            "Committer._check_stands",
            'if reader.numbers(await self._files.names("snapshot"), "snapshot")[-1:] != [latest.id]:',
            "if False:",
        ),
        profile="commits of our own that are overtaken",
    ),
    hole(
        "paimon-history-with-a-hole",
        "Younger snapshots are closed although an older one could not be.",
        _P,
        edit("lakesweep.cleanup.sweep", "Sweep.run", "if begins < 0 and result.report.failed:", "if False:"),
    ),
    hole(
        "paimon-commit-overwrites",
        "Our commit replaces the snapshot file of a writer that was faster.",
        _P,
        edit(
            _COMMIT,
            "Committer._publish",
            "await self._writer.put(location, data, create_only=True)",
            "await self._writer.put(location, data, create_only=False)",
        ),
        profile="commits of our own that are overtaken",
    ),
    hole(
        "paimon-lost-answer-is-a-failure",
        "The files of a commit whose answer got lost are removed again.",
        _P,
        edit(
            _COMMIT,
            "Committer.commit",
            "        published = await self._publish(latest.id + 1, document)\n",
            "        try:\n            published = await self._publish(latest.id + 1, document)\n        except BaseException:\n            await self._tidy.discard(draft.written)\n            raise\n",
        ),
        edit(
            _COMMIT,
            "Committer._publish",
            "            trouble = exc\n",
            "            if not isinstance(exc, errors.AlreadyThere):\n                raise errors.CommitUnknown(str(exc)) from exc\n            trouble = exc\n",
        ),
        profile="partitions that expire",
    ),
    hole(
        "paimon-merge-loses-an-entry",
        "An entry gets lost when manifests are merged.",
        _P,
        edit(
            _COMMIT,
            "Committer._left",
            "if standing.keeps(meta.name, index, entry):",
            "if index and standing.keeps(meta.name, index, entry):",
        ),
        body(_COMMIT, "_check_all_there", "return None"),
        profile="partitions that expire",
    ),
    hole(
        "paimon-commit-on-a-cut-index",
        "Our commit carries on what a truncated index manifest names.",
        _P,
        edit(
            "lakesweep.formats.paimon.lists",
            "ListReader.read_index",
            "self._bytes(location, stored.size_bytes)",
            "self._bytes(location, None)",
        ),
        profile="a table in a partition",
    ),
    hole(
        "paimon-fields-not-carried-on",
        "Our commit drops the index manifest and the statistics of the snapshot before.",
        _P,
        edit(
            _COMMIT,
            "",
            '_CARRIED = ("indexManifest", "watermark", "statistics", "nextRowId", "logOffsets")',
            '_CARRIED = ("watermark", "nextRowId", "logOffsets")',
        ),
        edit(
            _COMMIT,
            "Committer._prepare",
            '            del document["indexManifest"]\n',
            '            document.pop("indexManifest", None)\n',
        ),
        edit(
            _COMMIT,
            "Committer._prepare",
            '            del document["statistics"]\n',
            '            document.pop("statistics", None)\n',
        ),
    ),
    hole(
        "paimon-unknown-fields-dropped",
        "Our commit drops fields of a snapshot that nobody here knows.",
        _P,
        edit(
            _COMMIT,
            "Committer.commit",
            "if unknown := latest.document.keys() - KNOWN_FIELDS:",
            "if unknown := frozenset[str]():",
        ),
        edit(_EXPIRY, "due_partitions", "if due.partitions and unknown:", "if False:"),
        profile="a later release writes",
    ),
    hole(
        "paimon-names-in-unknown-fields",
        "Files that a snapshot names in a field which nobody here knows go.",
        _P,
        body("lakesweep.formats.paimon.snapshots", "_check_fields", "return None"),
        profile="a later release writes",
    ),
    hole(
        "paimon-next-snapshot-unseen",
        "A snapshot that is there but was not listed stops nothing.",
        _P,
        body("lakesweep.formats.paimon.newest", "check", "return None"),
        body(_READER, "has_gone_on", "return False"),
        profile="snapshots that are not listed",
    ),
    hole(
        "paimon-head-without-its-end",
        "The head is what was listed; a snapshot committed behind the listing is not looked for.",
        _P,
        body(_READER, "has_gone_on", "return False"),
        profile="commits at the last moment",
    ),
    hole(
        "paimon-head-is-the-snapshot",
        "Tags, branches and consumers do not move the head.",
        _P,
        edit(_READER, "head_of", "for directory in _DIRECTORIES:", 'for directory in ("snapshot",):'),
        profile="snapshots that were to go come back",
    ),
    hole(
        "paimon-no-snapshots-means-empty",
        "A table whose snapshots are gone or not there yet counts as one that never had any.",
        _P,
        body(_READER, "_check_never_committed", "return None"),
        body(_READER, "_check_not_lost", "return None"),
        profile="lists and snapshots that are lost",
    ),
    hole(
        "paimon-cut-lists-believed",
        "A manifest list or manifest of another length than recorded is believed.",
        _P,
        edit(
            "lakesweep.formats.paimon.lists",
            "ListReader._read",
            "if size is not None and len(data) != size:",
            "if False:",
        ),
        body("lakesweep.formats.paimon.lists", "ListReader._check_rows", "return None"),
        edit(_DECODE, "decode", "if source.size_bytes is not None and len(data) != source.size_bytes:", "if False:"),
        body("lakesweep.formats.paimon.manifests", "_check_count", "return None"),
    ),
    hole(
        "paimon-vanished-is-nothing",
        "A list that vanished while it was read counts as empty, and nobody misses it.",
        _P,
        edit(
            "lakesweep.formats.paimon.lists",
            "ListReader.manifest_list",
            "return await self._of(snapshot, name)",
            "return await self.list_if_there(snapshot, name)",
        ),
        edit(
            _REFERENCES,
            "ReferenceReader._kept_parts",
            "required += [snapshot.base_list, snapshot.delta_list]",
            "optional += [snapshot.base_list, snapshot.delta_list]",
        ),
        profile="lists and snapshots that are lost",
    ),
    hole(
        "paimon-table-in-a-partition",
        "Another table whose home is a partition of this one is not recognised.",
        _P,
        body(_VIEW, "PaimonView.foreign_owner", "return None"),
        profile="a table in a partition",
    ),
    hole(
        "paimon-anything-in-the-directory",
        "Files outside of Paimon's own directories are candidates.",
        _P,
        edit(
            _LAYOUT,
            "PaimonLayout._in_data",
            "if len(directories) != self.partition_levels + 1 or not _BUCKET.match(directories[-1]):\n            return _ELSEWHERE",
            "pass",
        ),
        edit(
            _LAYOUT,
            "PaimonLayout._in_data",
            '            if "=" not in level:\n                return _ELSEWHERE',
            "            pass",
        ),
    ),
    hole(
        "paimon-negative-numbers",
        "A negative retention, which people write for never, expires everything.",
        _P,
        body("lakesweep.formats.paimon.options", "_check_retention", "return None"),
    ),
)
