"""Build the JSON documents of trash and restores: for `trash --json`, `restore --json` and the API.

Pure: values in, documents out.
"""

from __future__ import annotations

from datetime import datetime

from lakesweep.cleanup.report import count_and_bytes, iso_utc
from lakesweep.model import trash_document
from lakesweep.model.files import Tally
from lakesweep.model.run import Restored
from lakesweep.model.run_document import Run


def restore_document(result: Restored, *, paused: bool) -> trash_document.Restoration:
    return {
        "run_id": result.of,
        "restored": count_and_bytes(result.restored),
        "already_there": result.already_there,
        "not_restorable": {
            "count": result.not_restorable,
            "files": [{"path": one.path, "why": one.why} for one in result.examples],
        },
        "paused": paused,
    }


def run_document(run: Run, files: Tally, until: datetime | None) -> trash_document.TrashRun:
    return {
        **count_and_bytes(files),
        "run_id": run["run_id"],
        "table": run["table"],
        "moved_at": run["finished_at"],
        "until": iso_utc(until),
    }


def place_document(
    tenant: str, place: str, runs: list[trash_document.TrashRun], foreign: Tally
) -> trash_document.TrashPlace:
    return {"tenant": tenant, "place": place, "runs": runs, "foreign": count_and_bytes(foreign)}
