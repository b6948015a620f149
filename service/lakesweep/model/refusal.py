"""Every refusal code, and the consequences of each. Pure.

A code is a promise to machines: it is added, never renamed or removed. Every refusal has one of these codes, and the
runbook has a row for each. The scheduler, approvals, holds, notifications and the command line look up the consequences
here, and a test compares the alerts of deploy/prometheus with them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RefusalCode(StrEnum):
    """Why something was refused."""

    # The guards of a cycle.
    MISSING_LIVE_FILES = "missing_live_files"
    MISSING_CLASH = "missing_clash"
    NOTHING_MATCHES = "nothing_matches"
    EMPTY_LIVE_SET = "empty_live_set"
    SHORT_LIVE_SET = "short_live_set"
    FOREIGN_TABLE = "foreign_table"
    OVERLAP = "overlap"
    NEIGHBOURS_UNKNOWN = "neighbours_unknown"
    OUTSIDE_ROOT = "outside_root"
    CLOCK_SKEW = "clock_skew"
    TABLE_CHANGED = "table_changed"
    INDETERMINATE = "indeterminate"
    CEILING_FILES = "ceiling_files"
    CEILING_BYTES = "ceiling_bytes"
    CEILING_SHARE = "ceiling_share"
    CEILING_NEW_PLACE = "ceiling_new_place"
    # The guards of a ghost's plan.
    GHOST_NOT_APPROVED = "ghost_not_approved"
    GHOST_YOUNG = "ghost_young"
    GHOST_CLAIMED = "ghost_claimed"
    # Before a cycle, or before its first change.
    BUSY = "busy"
    HELD = "held"
    PLAN_ONLY = "plan_only"
    NO_WRITER = "no_writer"
    TRASH_PLACE = "trash_place"
    # After an expiry commit that did more than it should have.
    REF_LOST = "ref_lost"
    REF_UNVERIFIED = "ref_unverified"
    # A history that is older than what an earlier run has seen.
    LOG_SET_BACK = "log_set_back"
    # Tables that are not cleaned.
    GC_DISABLED = "gc_disabled"
    ENCRYPTED = "encrypted"
    UNSUPPORTED = "unsupported"
    UNSUPPORTED_PROTOCOL = "unsupported_protocol"
    UNSUPPORTED_FEATURE = "unsupported_feature"
    UNREADABLE_PROPERTY = "unreadable_property"
    DAMAGED_LOG = "damaged_log"
    NOT_A_TABLE = "not_a_table"
    BAD_TABLE_OPTIONS = "bad_table_options"
    UNSUPPORTED_TABLE_TYPE = "unsupported_table_type"
    UNSUPPORTED_PARTITION_KEY = "unsupported_partition_key"
    CHAIN_TABLE = "chain_table"
    ICEBERG_COMPATIBLE = "iceberg_compatible"
    REST_MANAGED = "rest_managed"
    NO_SCHEMA = "no_schema"
    NO_SNAPSHOTS = "no_snapshots"
    UNKNOWN_SNAPSHOT_VERSION = "unknown_snapshot_version"
    UNKNOWN_MANIFEST_VERSION = "unknown_manifest_version"
    # Inventories that cannot replace a listing.
    INVENTORY_MISSING = "inventory_missing"
    INVENTORY_AMBIGUOUS = "inventory_ambiguous"
    INVENTORY_ELSEWHERE = "inventory_elsewhere"
    INVENTORY_TOO_OLD = "inventory_too_old"
    INVENTORY_TOO_NEW = "inventory_too_new"
    # Commands and requests of people.
    NOTHING_TO_RESTORE = "nothing_to_restore"
    NOT_WAITING = "not_waiting"
    OTHER_PLAN = "other_plan"
    PLAN_DAMAGED = "plan_damaged"
    TOO_MANY_REQUESTS = "too_many_requests"
    HELD_BY_ADMIN = "held_by_admin"
    TOO_MANY_HOLDS = "too_many_holds"
    NOT_RUNNING = "not_running"
    NOT_DISCOVERED = "not_discovered"


class Alert(StrEnum):
    """The alerts of deploy/prometheus that are about refusals."""

    MISSING_FILES = "LakesweepMissingLiveFiles"
    CANNOT_JUDGE = "LakesweepIndeterminateTables"
    MUST_ACT = "LakesweepTablesRefused"
    CAN_APPROVE = "LakesweepPlanWaitsForApproval"


@dataclass(frozen=True, slots=True, kw_only=True)
class Consequences:
    """The consequences of a refusal."""

    approvable: bool = False
    """A person may approve the plan. That lifts this refusal and no other."""
    holds_table: bool = False
    """The refusal persists after its cause is gone: the table is held until a person resumes it."""
    tried_again_soon: bool = False
    """It resolves by itself, so the table is tried again within minutes. Others wait for the next regular cycle."""
    alert: Alert | None = None
    """The alert for those on call. None if it passes, or if nothing is broken, as with a kind of table that nobody
    cleans."""
    silent: bool = False
    """No notification. It only says that this is not the time: a person wants it so, or another run is under way."""
    advice: str | None = None
    """Advice for a person, if there is more to say than the reason. `RUN` stands for the run's id."""


_NOTHING_SPECIAL = Consequences()
_ABOVE_A_CEILING = Consequences(
    approvable=True,
    alert=Alert.CAN_APPROVE,
    advice="`lakesweep show RUN` shows the files of this plan; `lakesweep approve RUN` allows it.",
)
_SEEN_WRONGLY = Consequences(
    alert=Alert.CANNOT_JUDGE,
    advice="Compare the address in the catalog with the one in storage: scheme, bucket and path.",
)
_DAMAGED = Consequences(alert=Alert.CANNOT_JUDGE, advice="Read the table with another engine before anything else.")
_MUST_ACT = Consequences(alert=Alert.MUST_ACT)
_HOLDS = Consequences(holds_table=True, alert=Alert.MUST_ACT)

_KNOWN = {
    RefusalCode.INDETERMINATE: Consequences(
        alert=Alert.CANNOT_JUDGE,
        advice="Nothing of this table is deleted while something that must be kept cannot be read. "
        "Repair or restore the named object, or wait if the store was unreachable, then plan again.",
    ),
    RefusalCode.PLAN_ONLY: Consequences(
        advice="Configure the table's catalog in the settings and run it as tenant/dataset/table."
    ),
    RefusalCode.MISSING_LIVE_FILES: Consequences(
        alert=Alert.MISSING_FILES, advice="`lakesweep explain PATH` says which snapshot needs a missing file."
    ),
    RefusalCode.MISSING_CLASH: _SEEN_WRONGLY,
    RefusalCode.NOTHING_MATCHES: _SEEN_WRONGLY,
    RefusalCode.EMPTY_LIVE_SET: _DAMAGED,
    RefusalCode.SHORT_LIVE_SET: _DAMAGED,
    RefusalCode.NEIGHBOURS_UNKNOWN: Consequences(
        tried_again_soon=True,
        alert=Alert.MUST_ACT,  # it has to last for hours
        advice="The next cycle tries again; nothing needs to be done unless this continues.",
    ),
    RefusalCode.FOREIGN_TABLE: Consequences(
        alert=Alert.MUST_ACT,
        advice="Give each table its own location, and configure the catalog that is really in use.",
    ),
    RefusalCode.TABLE_CHANGED: Consequences(tried_again_soon=True, advice="Plan it again."),
    RefusalCode.CEILING_FILES: _ABOVE_A_CEILING,
    RefusalCode.CEILING_BYTES: _ABOVE_A_CEILING,
    RefusalCode.CEILING_SHARE: _ABOVE_A_CEILING,
    RefusalCode.CEILING_NEW_PLACE: _ABOVE_A_CEILING,
    RefusalCode.GHOST_NOT_APPROVED: Consequences(
        approvable=True,
        alert=Alert.CAN_APPROVE,
        advice="`lakesweep show RUN` shows every file and the digest; `lakesweep approve RUN --digest DIGEST` allows "
        "this plan, and `lakesweep run --ghosts --execute` carries it out.",
    ),
    RefusalCode.GHOST_YOUNG: Consequences(
        advice="Somebody wrote there not long ago: wait, or register the table where it belongs."
    ),
    RefusalCode.GHOST_CLAIMED: Consequences(advice="It is not a ghost: nothing needs to be done."),
    RefusalCode.BUSY: Consequences(
        tried_again_soon=True,
        silent=True,
        advice="Look at `lakesweep runs`, and try again when the other run has ended.",
    ),
    RefusalCode.HELD: Consequences(silent=True),
    RefusalCode.REF_LOST: _HOLDS,
    RefusalCode.REF_UNVERIFIED: _HOLDS,
    RefusalCode.LOG_SET_BACK: _HOLDS,
    RefusalCode.OVERLAP: _MUST_ACT,
    RefusalCode.OUTSIDE_ROOT: _MUST_ACT,
    RefusalCode.CLOCK_SKEW: _MUST_ACT,
    RefusalCode.TRASH_PLACE: _MUST_ACT,
    RefusalCode.DAMAGED_LOG: _MUST_ACT,
    RefusalCode.NO_SNAPSHOTS: _MUST_ACT,
    RefusalCode.UNREADABLE_PROPERTY: _MUST_ACT,
    RefusalCode.BAD_TABLE_OPTIONS: _MUST_ACT,
    RefusalCode.INVENTORY_MISSING: _MUST_ACT,
    RefusalCode.INVENTORY_AMBIGUOUS: _MUST_ACT,
    RefusalCode.INVENTORY_ELSEWHERE: _MUST_ACT,
    RefusalCode.INVENTORY_TOO_OLD: _MUST_ACT,
    RefusalCode.INVENTORY_TOO_NEW: _MUST_ACT,
}


def consequences(code: str) -> Consequences:
    """The consequences of a code. An unknown one, as from a newer replica, has the defaults: no approval lifts it."""
    return _KNOWN.get(RefusalCode(code), _NOTHING_SPECIAL) if code in _VALUES else _NOTHING_SPECIAL


_VALUES = frozenset(code.value for code in RefusalCode)


def remedy(code: str, run_id: str) -> str | None:
    """Advice about the refusal of a run, if there is more to say than its reason."""
    advice = consequences(code).advice
    return advice and advice.replace("RUN", run_id)
