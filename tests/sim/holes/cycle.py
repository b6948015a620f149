"""Holes in what all formats share: ages, guards, the questions before a delete, the records of it."""

from __future__ import annotations

from tests.sim.mutants import ALL, SERVICE, body, edit, hole

HOLES = (
    hole(
        "no-grace",
        "Unreferenced files are deleted however young they are.",
        ALL,
        edit("lakesweep.cleanup.guards", "cutoff", "- max(policy.grace_period, minimum_age)", "- minimum_age * 0"),
    ),
    hole(
        "grace-of-the-service-alone",
        "The format's own retention of unreferenced files and the needs of streams do not count, only the grace period.",
        ALL,
        edit("lakesweep.cleanup.guards", "cutoff", "max(policy.grace_period, minimum_age)", "policy.grace_period"),
    ),
    hole(
        "stream-files-wait-no-longer",
        "Where a stream writes, unreferenced files wait for the grace period only.",
        ALL,
        edit(
            "lakesweep.cleanup.guards",
            "grace",
            "policy.stream_state if state.stream else timedelta(0)",
            "timedelta(0)",
        ),
    ),
    hole(
        "clocks-may-disagree",
        "This machine's clock alone decides about ages, however far it is from the store's.",
        ALL,
        body("lakesweep.cleanup.guards", "check_clock", "return None"),
        edit("lakesweep.cleanup.guards", "cutoff", "min(now, store_now)", "max(now, store_now)"),
        profile="clocks",
    ),
    hole(
        "first-of-each-manifest-is-skipped",
        "The first file that a manifest or checkpoint names is not read.",
        ALL,
        edit(
            "lakesweep.cleanup.addresses",
            "place",
            "    paths = _present(paths)\n",
            "    paths = _present(paths)\n"
            "    if role is Role.READ:\n"
            "        paths = paths.slice(1)\n"
            "        tolerated = tolerated.slice(1) if tolerated is not False else False\n",
        ),
    ),
    hole(
        "direct-names-do-not-keep",
        "Files that metadata names directly (manifests, lists, statistics, log files) are not protected by it.",
        ALL,
        edit("lakesweep.engines.common", "named_directly", "(Role.NAMED, references.retained, False),", ""),
    ),
    hole(
        "tolerated-do-not-keep",
        "References whose file may be absent keep nothing.",
        ALL,
        edit("lakesweep.engines.common", "named_directly", "(Role.NAMED, references.tolerated, True),", ""),
    ),
    hole(
        "hidden-names-go",
        "Names that are hidden, or that the format keeps for itself, count as orphans.",
        ALL,
        edit("lakesweep.cleanup.classify", "_decide", "if kind.reserved:", "if kind.reserved and old is None:"),
    ),
    hole(
        "foreign-names-go",
        "Files that the format does not write count as orphans.",
        ALL,
        edit("lakesweep.cleanup.classify", "_decide", "if kind.foreign:", "if kind.foreign and old is None:"),
    ),
    hole(
        "name-live-elsewhere-goes",
        "A file whose name is live outside the table's roots is deleted.",
        ("iceberg",),
        edit("lakesweep.cleanup.classify", "_decide", "if elsewhere:", "if elsewhere is None:"),
    ),
    hole(
        "unknown-age-is-old",
        "A file whose age the store does not tell counts as old.",
        ALL,
        edit(
            "lakesweep.cleanup.classify", "judge", "old = modified_at is not None and", "old = modified_at is None or"
        ),
        profile="ages",
    ),
    hole(
        "nobody-asks-again",
        "What is referenced is not asked for again between the plan and the delete.",
        ALL,
        body("lakesweep.cleanup.revalidate", "Revalidator.__call__", "return frozenset()"),
        profile="returns",
    ),
    hole(
        "asked-once-a-sweep",
        "The head is read once before the first batch and believed for the rest of the sweep.",
        ALL,
        body(
            "lakesweep.cleanup.revalidate",
            "Revalidator.__call__",
            "if not hasattr(self, '_once'):\n    self._once = await self._read_references()\nreturn self._once",
        ),
        profile="returns",
    ),
    hole(
        "asked-once-a-batch",
        "Behind the audit record and the journal nobody asks once more, right before the request.",
        ALL,
        edit(
            "lakesweep.cleanup.delete_conditions",
            "BatchConditions.withheld",
            "await self._look()",
            "frozenset()",
        ),
        profile="returns",
    ),
    hole(
        "spared-is-forgotten",
        "What became referenced again is counted as spared, and deleted.",
        ALL,
        body("lakesweep.cleanup.delete_conditions", "still_referenced", "return frozenset()"),
        edit("lakesweep.cleanup.sweep", "Sweep._spare", "if not referenced:", "if referenced is not None:"),
        profile="returns",
    ),
    hole(
        "head-moves-while-asking",
        "What is committed while new references are being read is not looked at.",
        "iceberg",
        edit(
            "lakesweep.cleanup.revalidate",
            "Revalidator._read_references",
            "            if await unless_overtaken(self._look) and await self._table.head() == self._head:\n",
            "            if await unless_overtaken(self._look) or True:\n",
        ),
        profile="overtakes",
    ),
    hole(
        "answer-of-an-earlier-question",
        "A caller who asks while an answer is under way gets that answer, sought before the question.",
        SERVICE,
        edit(
            "lakesweep.cleanup.delete_conditions",
            "Shared.__call__",
            "if self._answered < mine:",
            "if not self._answered:",
        ),
        profile="pauses",
    ),
    hole(
        "kept-snapshot-loses-its-files",
        "The files of a snapshot that was to expire and did not are deleted all the same.",
        ("iceberg", "paimon"),
        edit(
            "lakesweep.cleanup.revalidate",
            "Revalidator.__init__",
            "self._head = None if expires else planned.state.head",
            "self._head = None if expires else planned.state.head\n        self._committed = expiring",
        ),
        edit(
            "lakesweep.cleanup.revalidate",
            "Revalidator.__init__",
            "self._read = _retained_sources(planned.references)",
            "self._read = frozenset(source.cache_key for source in planned.references.sources)",
        ),
    ),
    hole(
        "released-again-is-not-alive",
        "A file that the log had released at the time of the plan and has added again since is deleted.",
        ("delta", "paimon"),
        edit("lakesweep.cleanup.revalidate", "Revalidator._new_keys", "keys |= self._released - released", "pass"),
    ),
    hole(
        "another-table-by-the-same-name",
        "A table that was dropped and created again since the plan is swept by the old plan.",
        "iceberg",
        edit(
            "lakesweep.cleanup.revalidate",
            "Revalidator._look",
            "if state.table_uuid != self._planned.state.table_uuid:",
            "if False:",
        ),
        profile="replaced",
    ),
    hole(
        "longer-retention-comes-too-late",
        "That the table keeps unreferenced files longer since the plan, or that a stream writes to it, is not heard.",
        "iceberg",
        edit(
            "lakesweep.cleanup.revalidate",
            "Revalidator._look",
            "if state.minimum_age > planned.minimum_age or (state.stream and not planned.stream):",
            "if False:",
        ),
        edit(
            "lakesweep.cleanup.guards",
            "check_stayed",
            "elif listed.minimum_age < marked.minimum_age or (marked.stream and not listed.stream):",
            "elif False:",
        ),
        profile="latecomers",
    ),
    hole(
        "moved-while-listed",
        "A table that was moved or replaced between its listing and its marking is cleaned by both, and the gate in front of "
        "the deleter, which knows the table's own places, is open.",
        "iceberg",
        edit(
            "lakesweep.cleanup.guards",
            "check_stayed",
            "if listed.roots != marked.roots or listed.table_uuid != marked.table_uuid:",
            "if False:",
        ),
        body("lakesweep.cleanup.delete_gate", "GatedDeleter._check", "return None"),
        profile="replaced",
    ),
    hole(
        "foreign-table-inside",
        "Another table's metadata in this table's place stops nothing.",
        ALL,
        edit(
            "lakesweep.cleanup.guards",
            "check_plan",
            "or (foreign_owner and Refusal(code=RefusalCode.FOREIGN_TABLE, reason=foreign_owner))",
            "",
        ),
    ),
    hole(
        "two-tables-in-one-place",
        "Tables that share a place are cleaned.",
        ALL,
        edit(
            "lakesweep.cleanup.guards",
            "check_overlap",
            "if mine.overlaps(theirs) or _are_one(mine, theirs, identities):",
            "if False:",
        ),
        edit(
            "lakesweep.cleanup.guards",
            "check_plan",
            "or (foreign_owner and Refusal(code=RefusalCode.FOREIGN_TABLE, reason=foreign_owner))",
            "",
        ),
    ),
    hole(
        "lent-files-go",
        "Files that another table uses in this table's place are deleted.",
        ALL,
        edit(
            "lakesweep.cleanup.mark",
            "Marking._mark_at",
            "(*references.tolerated, *paths)",
            "references.tolerated",
        ),
        edit(
            "lakesweep.cleanup.check",
            "check_again",
            "if not {path for paths in shared.values() for path in paths} <= set(marked.references.tolerated):",
            "if False:",
        ),
        profile="lending",
    ),
    hole(
        "lent-since-the-plan",
        "Files that another table began to use after the table was marked are deleted.",
        "iceberg",
        edit(
            "lakesweep.cleanup.check",
            "check_again",
            "if not {path for paths in shared.values() for path in paths} <= set(marked.references.tolerated):",
            "if False:",
        ),
        profile="lending",
    ),
    hole(
        "missing-files-do-not-stop",
        "A table with live files that storage does not have is cleaned.",
        "paimon",
        body("lakesweep.cleanup.guards", "_check_missing", "return None"),
    ),
    hole(
        "a-new-place-is-its-own",
        "What lies in a place that the table was just moved to is taken for the table's own.",
        ("iceberg",),
        body("lakesweep.cleanup.guards", "_check_place", "return None"),
        profile="places",
    ),
    hole(
        "guards-after-the-commit",
        "A refused plan keeps its files, but its expiry is committed.",
        ("iceberg",),
        edit(
            "lakesweep.cleanup.plan",
            "_plan_now",
            "    await save(orphans, ports.state, ports.artifacts, ports.clock, run_id=context.run_id, table=ports.table.ref)\n",
            "    await save(orphans, ports.state, ports.artifacts, ports.clock, run_id=context.run_id, table=ports.table.ref)\n"
            "    if refusal and context.execute:\n"
            "        await ports.table.commit_expiry(marked.state, policy, now, context.fence)\n",
        ),
        profile="clocks",
    ),
    hole(
        "files-before-the-commit",
        "Files of expired snapshots are deleted before the expiry is committed.",
        ("iceberg",),
        edit(
            "lakesweep.cleanup.execute",
            "execute",
            "after, committed = await _commit_expiry(ports, context, recorder, planned)",
            "after, committed = planned.marked.state, planned.expiry",
        ),
        body("lakesweep.cleanup.revalidate", "Revalidator.__call__", "return frozenset()"),
    ),
    hole(
        "stages-side-by-side",
        "A stage of deletes does not wait for the one before it.",
        ("delta", "paimon"),
        edit(
            "lakesweep.cleanup.sweep",
            "Sweep.run",
            "if begins != stage or len(running) >= _TASKS_HELD:\n                    await _finish(running)",
            "if begins != stage:\n                    pass",
        ),
    ),
    hole(
        "stages-backwards",
        "The stages of a sweep run in the reverse order.",
        ("delta", "paimon"),
        edit("lakesweep.cleanup.plan_file", "read_cut", "cuts = _cut(ready, size)", "cuts = _cut(ready, size)[::-1]"),
        edit("lakesweep.cleanup.plan_file", "read_cut", "yield _cut(held, size)", "yield _cut(held, size)[::-1]"),
    ),
    hole(
        "journal-after-the-delete",
        "A batch is written into the journal when it is done, not before it begins.",
        SERVICE,
        edit(
            "lakesweep.cleanup.sweep", "Sweep.run", "                    await self.journal.begin_batch(record)\n", ""
        ),
        edit(
            "lakesweep.cleanup.sweep",
            "Sweep._write_down",
            "await self.journal.finish_batch(done)",
            "await self.journal.begin_batch(done)\n            await self.journal.finish_batch(done)",
        ),
    ),
    hole(
        "audit-after-the-delete",
        "The audit trail records a delete only after it happened, not before.",
        SERVICE,
        edit(
            "lakesweep.cleanup.sweep",
            "Sweep.run",
            "                    await self.audit.deleting(record, going, spared)\n",
            "",
        ),
    ),
    hole(
        "failures-count-as-deleted",
        "Objects that the store did not delete are reported as deleted.",
        ALL,
        edit(
            "lakesweep.cleanup.batches",
            "deletion_report",
            "statuses = [one.status for one in answers]",
            "statuses = [DeleteStatus.DELETED for _ in answers]",
        ),
    ),
    hole(
        "stop-is-not-heard",
        "A sweep that was asked to stop continues to its end.",
        SERVICE,
        edit("lakesweep.cleanup.sweep", "Sweep.run", "if self.stop.is_set():", "if False:"),
        edit("lakesweep.cleanup.delete_conditions", "LastCheck.check", "if self.stop.is_set():", "if False:"),
    ),
    hole(
        "unsure-outcome-goes-on",
        "What a trouble with the table says before a request does not end the sweep: the request is sent.",
        ALL,
        edit(
            "lakesweep.cleanup.delete_conditions",
            "BatchConditions.withheld",
            "return {path: not_sent(path, str(exc)) for path in paths}",
            "self._last_check.ended_by = None\n            return {}",
        ),
    ),
    hole(
        "unconfirmed-files-go",
        "With confirm_after_hours a file is deleted although no earlier run has seen it unreferenced.",
        ALL,
        edit(
            "lakesweep.cleanup.ledger",
            "Ledger._split",
            "ripe = pc.and_(is_known, pc.less_equal(first_seen, ripe_until))",
            "ripe = pc.or_(is_known, pc.invert(is_known))",
        ),
    ),
    hole(
        "referenced-again-stays-ripe",
        "A file that was seen unreferenced, and referenced after that, does not start to wait again.",
        ALL,
        edit(
            "lakesweep.cleanup.ledger",
            "Ledger.settle",
            "address = await self._publish(self._observed, run)",
            "address = header.rows_path if header and header.rows_path else await self._publish(self._observed, run)",
        ),
        edit(
            "lakesweep.cleanup.ledger", "Ledger._point_to", "if before is not None and before.rows_path:", "if False:"
        ),
    ),
    hole(
        "failed-runs-count-as-sightings",
        "What a failed or refused run saw unreferenced counts as seen.",
        ALL,
        edit(
            "lakesweep.cleanup.ledger",
            "_stays",
            "return pc.and_(known, pc.invert(ripe)) if run.spared else known",
            "return pc.or_(known, pc.invert(known))",
        ),
    ),
    hole(
        "overtaken-expiries-count-as-sightings",
        "Files of an expired snapshot count as seen although others committed between the plan and the expiry.",
        "iceberg",
        edit(
            "lakesweep.cleanup.ledger",
            "_as_planned",
            "same_state = planned.empty or (run.expiry is not None and run.expiry.head == planned.head)",
            "same_state = True",
        ),
        beyond="story `iceberg` 49286 finds it, which is always run, and no earlier one",
    ),
    hole(
        "expired-files-wait-from-before-their-expiry",
        "Files of snapshots that a dry run only would have expired count as seen unreferenced.",
        "iceberg",
        edit(
            "lakesweep.cleanup.ledger",
            "_stays",
            "return pc.or_(known, unreferenced)",
            "return pc.or_(known, pc.invert(known))",
        ),
        edit(
            "lakesweep.cleanup.ledger",
            "_sightings",
            "known = pc.and_(pc.is_valid(before), pc.and_(same_reason, pc.less_equal(before, now)))",
            "known = pc.is_valid(before)",
        ),
        profile="rehearsals",
    ),
    hole(
        "restore-forgets-interrupted-batches",
        "What a run moved to the trash in the batch at which its process ended is not restored.",
        ALL,
        edit(
            "lakesweep.cleanup.restore_finder",
            "Finder.batches",
            "for batch in self.taken.batches:",
            'for batch in [one for one in self.taken.batches if one.state == "done"]:',
        ),
        profile="other ways",
    ),
    hole(
        "restore-leaves-the-first-file",
        "The first file of each batch stays in the trash, and the restore ends as if it were back.",
        ALL,
        edit(
            "lakesweep.cleanup.restore",
            "Restore._moved",
            "                for row in rows\n",
            "                for row in rows[1:]\n",
        ),
        profile="other ways",
    ),
    hole(
        "trash-of-nobody",
        "With a trash, files are deleted for good.",
        ALL,
        body(
            "lakesweep.cleanup.delete_gate",
            "TrashDeleter.delete",
            "return await self._directories.delete(paths, conditions)",
        ),
        profile="other ways",
    ),
)
