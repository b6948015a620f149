"""Holes in what is Iceberg's own: retention, references, other histories, the expiry commit."""

from __future__ import annotations

from tests.sim.mutants import body, edit, hole

_I = "iceberg"
_RETENTION = "lakesweep.formats.iceberg.retention"
_REFERENCES = "lakesweep.formats.iceberg.references"
_DECODE = "lakesweep.formats.iceberg.decode"
_EXPIRE = "lakesweep.formats.iceberg.expire"
_TABLE = "lakesweep.formats.iceberg.table"
_VIEW = "lakesweep.formats.iceberg.view"
_LAYOUT = "lakesweep.formats.iceberg.layout"
_FOREIGN = "lakesweep.formats.iceberg.foreign_tables"
_LIFELINES = "lakesweep.formats.iceberg.retention"

HOLES = (
    hole(
        "iceberg-tags-do-not-pin",
        "A snapshot expires although a tag points at it.",
        _I,
        edit(
            _RETENTION, "_reasons", "if ref.snapshot_id in by_id:", "if ref.snapshot_id in by_id and ref.name == MAIN:"
        ),
        edit(
            _RETENTION,
            "plan",
            "drop_refs=tuple(ref.name for ref in metadata.refs if ref not in refs)",
            "drop_refs=tuple(ref.name for ref in metadata.refs if ref.snapshot_id not in reasons)",
        ),
    ),
    hole(
        "iceberg-branches-keep-their-head-only",
        "The ancestors of a branch other than main expire however young they are.",
        _I,
        edit(
            _RETENTION,
            "_reasons",
            "if ref.kind is RefKind.BRANCH:\n            on_a_ref",
            "if ref.kind is RefKind.BRANCH and ref.name == MAIN:\n            on_a_ref",
        ),
        edit(
            _RETENTION,
            "_reasons",
            "if entry.id not in on_a_ref and entry.timestamp_ms >= defaults.now_ms - off_branch_ms:",
            "if False:",
        ),
    ),
    hole(
        "iceberg-staged-snapshots-go",
        "A young snapshot that is on no branch (staged, or rolled back) expires.",
        _I,
        edit(
            _RETENTION,
            "_reasons",
            "if entry.id not in on_a_ref and entry.timestamp_ms >= defaults.now_ms - off_branch_ms:",
            "if False:",
        ),
    ),
    hole(
        "iceberg-no-minimum",
        "The number of snapshots that a branch keeps at least does not count.",
        _I,
        edit(_RETENTION, "_walk", "if kept < at_least:", "if kept < 1:"),
    ),
    hole(
        "iceberg-age-of-the-policy",
        "The table's own maximum age of snapshots is ignored in favour of the policy's.",
        _I,
        edit(
            _RETENTION,
            "_defaults",
            "max_age_ms=policy.max_snapshot_age // _MS if own.max_snapshot_age_ms is None else own.max_snapshot_age_ms,",
            "max_age_ms=policy.max_snapshot_age // _MS,",
        ),
    ),
    hole(
        "iceberg-minimum-of-the-policy",
        "The table's own minimum of snapshots is ignored in favour of the policy's.",
        _I,
        edit(
            _RETENTION,
            "_defaults",
            "min_to_keep=policy.min_snapshots_to_keep if own.min_snapshots_to_keep is None else own.min_snapshots_to_keep,",
            "min_to_keep=policy.min_snapshots_to_keep,",
        ),
    ),
    hole(
        "iceberg-branch-retention-ignored",
        "What a branch says of its own retention does not count.",
        _I,
        edit(
            _RETENTION,
            "_walk",
            "max_age_ms = defaults.max_age_ms if ref.max_snapshot_age_ms is None else ref.max_snapshot_age_ms",
            "max_age_ms = defaults.max_age_ms",
        ),
        edit(
            _RETENTION,
            "_walk",
            "at_least = defaults.min_to_keep if ref.min_snapshots_to_keep is None else ref.min_snapshots_to_keep",
            "at_least = defaults.min_to_keep",
        ),
    ),
    hole(
        "iceberg-refs-go-at-once",
        "A ref with an age limit is dropped before it has reached that age.",
        _I,
        edit(
            _RETENTION, "has_outlived", "at_ms - entry.timestamp_ms > limit", "at_ms - entry.timestamp_ms > limit // 4"
        ),
    ),
    hole(
        "iceberg-replaced-goes-at-once",
        "A snapshot that was current for a month expires minutes after it was replaced.",
        _I,
        body(_RETENTION, "_floor", "return timedelta(0)"),
    ),
    hole(
        "iceberg-negative-retention-means-all",
        "A negative retention, which people write for never, expires everything.",
        _I,
        body("lakesweep.formats.iceberg.unsupported", "_refuse_negative", "return None"),
        profile="swaps",
    ),
    hole(
        "iceberg-gc-enabled-ignored",
        "A table with gc.enabled=false is cleaned.",
        _I,
        edit(
            "lakesweep.formats.iceberg.unsupported",
            "refuse_uncleanable",
            'if any(properties.get(GC_ENABLED, "true").lower() != "true"',
            'if any(False and properties.get(GC_ENABLED, "true").lower() != "true"',
        ),
        profile="shares",
    ),
    hole(
        "iceberg-stream-commits-expire",
        "The newest commit of a stream expires like any other.",
        _I,
        body(_LIFELINES, "add_streams", "return None"),
        profile="streams",
    ),
    hole(
        "iceberg-stream-branch-goes",
        "A branch past its age is dropped although a stream may come back to it.",
        _I,
        body(_LIFELINES, "with_streams", "return list(staying)"),
        profile="branches",
    ),
    hole(
        "iceberg-stream-line-broken",
        "A stream's newest commit stays, but the snapshots between it and the head expire.",
        _I,
        edit(_LIFELINES, "_add_line", "for entry in line[: depth[needed[last].id]]:", "for entry in ():"),
        profile="streams",
    ),
    hole(
        "iceberg-streams-unseen",
        "No summary shows a stream.",
        _I,
        body("lakesweep.formats.streams", "of_summary", "return ()"),
        profile="streams",
    ),
    hole(
        "iceberg-pending-manifests-go",
        "A manifest that a Flink job wrote and has not committed is deleted, with the files that it lists.",
        _I,
        body("lakesweep.formats.iceberg.other_histories", "PendingManifests.named", "return ()"),
        body("lakesweep.formats.streams", "pending_manifest", "return None"),
        profile="streams",
    ),
    hole(
        "iceberg-current-snapshot-only",
        "Only what a ref leads to is retained; other snapshots of the metadata protect nothing.",
        _I,
        edit(
            _REFERENCES,
            "_split",
            "going = set(expiring) & present",
            "going = (set(expiring) & present) | (present - {ref.snapshot_id for ref in metadata.refs})",
        ),
    ),
    hole(
        "iceberg-statistics-go",
        "Statistics files of retained snapshots are not references.",
        _I,
        edit(_REFERENCES, "collect", "*(entry.path for entry in split.retained_statistics),", ""),
    ),
    hole(
        "iceberg-partition-statistics-go",
        "Partition statistics files are not references.",
        _I,
        edit(
            "lakesweep.formats.iceberg.metadata",
            "TableMetadata.statistics_files",
            "return self.statistics + self.partition_statistics",
            "return self.statistics",
        ),
    ),
    hole(
        "iceberg-old-metadata-goes",
        "Earlier metadata files that the log still names are deleted.",
        _I,
        edit(
            _REFERENCES, "collect", "tolerated=_distinct(hint, *metadata.metadata_log),", "tolerated=_distinct(hint),"
        ),
    ),
    hole(
        "iceberg-hint-goes",
        "The version hint is an orphan.",
        _I,
        edit(
            _REFERENCES,
            "collect",
            "tolerated=_distinct(hint, *metadata.metadata_log),",
            "tolerated=_distinct(*metadata.metadata_log),",
        ),
        edit(_LAYOUT, "_kind_of_name", "kind = _HINT", "kind = _DATA"),
        profile="places",
    ),
    hole(
        "iceberg-delete-files-go",
        "Delete manifests and what they name are not references.",
        _I,
        edit(
            _REFERENCES,
            "collect",
            "for row in _once(await aio.together(lists.manifests_of(entry) for entry in split.retained)):\n",
            "for row in _once(await aio.together(lists.manifests_of(entry) for entry in split.retained)):\n"
            "        if row.content:\n            continue\n",
        ),
    ),
    hole(
        "iceberg-existing-entries-go",
        "Entries that a rewritten manifest carries on are taken for deleted.",
        _I,
        edit(
            _DECODE,
            "_live",
            "if _DELETED in statuses:\n        live = live.filter(pc.not_equal(status, pa.scalar(_DELETED, status.type)))",
            "live = live.filter(pc.equal(status, pa.scalar(1, status.type)))",
        ),
    ),
    hole(
        "iceberg-cut-manifests-believed",
        "A manifest that was cut off behind a block is believed.",
        _I,
        body(_DECODE, "_check_whole", "return None"),
        profile="cuts",
    ),
    hole(
        "iceberg-cut-lists-believed",
        "A manifest list that was cut off behind a block is believed.",
        _I,
        body(_DECODE, "_shortfalls", "return iter(())"),
        profile="cuts",
    ),
    hole(
        "iceberg-unreadable-list-skipped",
        "A retained manifest list that cannot be read is passed over.",
        _I,
        edit(_REFERENCES, "collect", "lists.manifests_of(entry)", "_or_nothing(lists, entry)"),
        edit(
            _REFERENCES,
            "",
            "def _lists_of(",
            "async def _or_nothing(lists: ManifestLists, entry: SnapshotEntry) -> tuple[ManifestRow, ...]:\n"
            "    return await _try(lists, entry) or ()\n\n\ndef _lists_of(",
        ),
    ),
    hole(
        "iceberg-put-back-is-dead",
        "A snapshot that this run expired and somebody put back counts as expired.",
        _I,
        edit(_VIEW, "IcebergView.references", "ids(expiring) - table.committed_away", "ids(expiring)"),
        profile="undone",
    ),
    hole(
        "iceberg-lost-answer-believed",
        "An expiry whose answer got lost counts as committed without a look at the table.",
        _I,
        body(_EXPIRE, "_happened", "return True"),
        edit(_VIEW, "IcebergView.references", "ids(expiring) - table.committed_away", "ids(expiring)"),
    ),
    hole(
        "iceberg-lost-answer-is-a-failure",
        "An expiry whose answer got lost is sent again without a look whether it arrived.",
        _I,
        edit(_EXPIRE, "ExpiryCommit.run", "if isinstance(trouble, errors.CommitConflict):", "if trouble is not None:"),
        edit(_EXPIRE, "ExpiryCommit.run", "if sent is not None and _happened(sent[1], state):", "if False:"),
        profile="refs",
    ),
    hole(
        "iceberg-requirements-forgotten",
        "The expiry commit does not demand that refs and retention are what was planned with.",
        _I,
        body(_EXPIRE, "PlanHolds.validate", "return None"),
        edit(
            _EXPIRE,
            "requirements",
            'demands += [update.AssertRefSnapshotId(ref=ref.name, **{"snapshot-id": ref.snapshot_id}) for ref in metadata.refs]',
            "pass",
        ),
        profile="swaps",
    ),
    hole(
        "iceberg-retention-changed-meanwhile",
        "What the owner says of retention between our look and our commit is not heard.",
        _I,
        edit(_EXPIRE, "PlanHolds.validate", "if _retention(base_metadata.properties) != self.retention:", "if False:"),
        profile="swaps",
    ),
    hole(
        "iceberg-planned-hours-ago",
        "The expiry is committed as it was planned, not as the table is now.",
        _I,
        edit(
            _EXPIRE,
            "ExpiryCommit.run",
            "            plan = self.plan(state)\n",
            "            plan = first = locals().get('first') or self.plan(planned_state)\n",
        ),
        edit(
            _EXPIRE,
            "ExpiryCommit.run",
            "        planned = state.table_uuid\n",
            "        planned = state.table_uuid\n        planned_state = state\n",
        ),
        body(_EXPIRE, "PlanHolds.validate", "return None"),
        profile="swaps",
    ),
    hole(
        "iceberg-other-format-inside",
        "The log of a Delta, Hudi or Paimon table in the same place is not recognised.",
        _I,
        body(_FOREIGN, "_is_other_log", "return False"),
        edit(
            _LAYOUT,
            "IcebergLayout._kind",
            "return _OTHER_LOG if segment in markers.SIGNS.hidden_logs else _HIDDEN",
            "return _HIDDEN",
        ),
        profile="places",
    ),
    hole(
        "iceberg-other-table-inside",
        "Another table's metadata file in this table's place is taken for an old one of its own.",
        _I,
        body(_FOREIGN, "Search._is_ours", "return True"),
        profile="places",
    ),
    hole(
        "iceberg-other-history-is-litter",
        "Metadata of another history of this table is taken for litter.",
        _I,
        body("lakesweep.formats.iceberg.lineage", "judge", "return []"),
        profile="histories",
    ),
    hole(
        "iceberg-another-history-fades",
        "Another history counts only as long as the table's own log reaches back to where it began.",
        _I,
        edit(
            "lakesweep.formats.iceberg.lineage",
            "_another",
            "return None if _is_old_leftover(line, link, links) else _NO_PAST",
            "return None",
        ),
        profile="slow",
    ),
    hole(
        "iceberg-metadata-elsewhere-unseen",
        "If metadata is written outside the roots, nobody looks there for another history, neither to check a plan nor "
        "before a request.",
        _I,
        body(_FOREIGN, "Search._places_outside", "return []"),
        body("lakesweep.formats.iceberg.other_histories", "OtherHistories._is_judged", "return True"),
        profile="elsewhere",
    ),
    hole(
        "iceberg-shared-data-path",
        "Every file below a data path that several tables share is taken for this table's.",
        _I,
        body(_LAYOUT, "IcebergLayout._is_ours", "return True"),
        body(_LAYOUT, "IcebergLayout._is_known_ours", "return True"),
        profile="places",
    ),
    hole(
        "iceberg-places-outside-the-tenant",
        "Places outside the tenant's root are listed and cleaned.",
        _I,
        edit(
            _LAYOUT,
            "roots_of",
            "if root is not None and (root == tenant_root.as_directory() or tenant_root.contains(root)):",
            "if root is not None:",
        ),
        body("lakesweep.cleanup.delete_gate", "GatedDeleter._check", "return None"),
        profile="places",
    ),
    hole(
        "iceberg-catalog-shows-more",
        "A catalog that shows a snapshot, a ref or a retention which its metadata file lacks is believed half.",
        _I,
        body("lakesweep.formats.iceberg.unsupported", "refuse_outdated", "return None"),
        profile="ahead",
    ),
    hole(
        "iceberg-lost-ref-unnoticed",
        "A ref that vanished together with our expiry is not noticed, nor that what expired was kept by then.",
        _I,
        edit("lakesweep.formats.iceberg.ref_history", "verify", "if lost is None or ref in knowingly:", "if True:"),
        body("lakesweep.formats.iceberg.ref_history", "refuse_overtaken", "return None"),
        profile="refs",
    ),
    hole(
        "iceberg-snapshot-log-not-cut",
        "The snapshot log keeps entries from before a gap, so that time travel by date answers wrongly.",
        _I,
        body(
            "lakesweep.formats.iceberg.commit_metadata",
            "cut_log",
            "return [entry for entry in log if entry.snapshot_id in left]",
        ),
        profile="swaps",
    ),
    hole(
        "iceberg-head-is-remembered",
        "The catalog is asked for the head once in a cycle.",
        _I,
        edit(
            _TABLE,
            "IcebergTable.head",
            "return _address((await self._source.pointer()).metadata_location)",
            "self._once = getattr(self, '_once', None) or _address((await self._source.pointer()).metadata_location)\n        return self._once",
        ),
        profile="undone",
    ),
    hole(
        "half-a-read-is-half-a-file",
        "Metadata in our directory that a store returned only in part counts as what a writer left that died.",
        _I,
        edit(_FOREIGN, "Search._look", "await self._check_whole(location, data)", "pass"),
        beyond="story `iceberg` 20004189 finds it, which is always run, and none of the first 2,000",
    ),
    hole(
        "buckets-have-one-name",
        "Files that another table uses by another name of the bucket are not recognised as ours.",
        _I,
        edit(
            "lakesweep.daemon.shared_files",
            "under_other_names",
            "below = keys.filter(pc.starts_with(keys, root.key_in_bucket))",
            "below = keys.slice(0, 0)",
        ),
        beyond="story `iceberg` 64359 finds it, which is always run, and no earlier one",
    ),
    hole(
        "iceberg-newer-metadata-goes-first",
        "A metadata file of the table's past is deleted while an older one, which was restored, stays.",
        _I,
        body("lakesweep.formats.iceberg.other_histories", "out_of_order", "return ()"),
        beyond="story `iceberg` 10007341 finds it, which is always run, and no earlier one",
    ),
)
