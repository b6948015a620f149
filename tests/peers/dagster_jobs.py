"""Jobs and asset checks for a real Dagster. Run as a script it tells how each ended."""

import json
import os
import sys

import dagster

GIVEN = json.loads(os.environ["ORCHESTRATOR_CASES"])
sys.path += GIVEN["borrowed"]  # what lakesweep needs to work in Dagster's own process, behind what Dagster brought

from lakesweep.integrations.dagster import lakesweep_op, orphan_check  # noqa: E402 - after its path

PLACES = {
    "here": {"config": GIVEN["config"]},
    "command": {"config": GIVEN["config"], "command": GIVEN["command"]},
    "api": {"api": GIVEN["api"], "token": GIVEN["token"]},
}


@dagster.asset
def orders():
    return None


def check(place, **given):
    waste = orphan_check(asset=orders, **PLACES[place], **given)
    with dagster.DagsterInstance.ephemeral() as instance:
        (told,) = dagster.materialize([orders, waste], instance=instance).get_asset_check_evaluations()
        return {"state": told.passed, "why": told.description}


def op(place, **given):
    cleaning = lakesweep_op("clean", **PLACES[place], **given)

    @dagster.job
    def job():
        cleaning()

    done = job.execute_in_process(raise_on_error=False)
    failures = [event.step_failure_data.user_failure_data for event in done.get_step_failure_events()]
    return {"state": done.success, "why": failures[0].description if failures and failures[0] else None}


KINDS = {"op": op, "check": check}
print("told " + json.dumps({name: KINDS[case.pop("kind")](**case) for name, case in GIVEN["cases"].items()}))
