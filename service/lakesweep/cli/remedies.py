"""What a person does about a refusal, by its code. A code without advice here says it in its own reason."""

from __future__ import annotations

_ABOVE_A_CEILING = "`lakesweep plan --json` shows every file; `lakesweep approve RUN` lets this plan go."

_REMEDIES = {
    "indeterminate": "Nothing of this table is deleted while something that must be kept cannot be read. "
    "Mend or restore the named object, or wait if the store was out of reach, and plan again.",
    "plan_only": "Configure the table's catalog in the settings and run it as tenant/dataset/table.",
    "missing_live_files": "`lakesweep explain PATH` says which snapshot needs a missing file.",
    "missing_clash": "Compare the address in the catalog with the one in storage: scheme, bucket and path.",
    "nothing_matches": "Compare the address in the catalog with the one in storage: scheme, bucket and path.",
    "empty_live_set": "Read the table with another engine before anything else.",
    "neighbours_unknown": "The next cycle asks again; nothing has to be done unless this goes on.",
    "short_live_set": "Read the table with another engine before anything else.",
    "foreign_table": "Give each table a place of its own, and configure the catalog that is really used.",
    "table_changed": "Plan it again.",
    "ceiling_files": _ABOVE_A_CEILING,
    "ceiling_bytes": _ABOVE_A_CEILING,
    "ceiling_share": _ABOVE_A_CEILING,
    "ceiling_new_place": _ABOVE_A_CEILING,
    "busy": "Look at `lakesweep runs`, and try again when the other run has ended.",
}


def remedy(code: str, run_id: str) -> str | None:
    """Advice for the refusal of a run, if there is more to say than its reason."""
    advice = _REMEDIES.get(code)
    return advice and advice.replace("RUN", run_id)
