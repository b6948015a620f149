"""DAGs for a real Airflow, 3 or 2: each runs the operator or the sensor once. As a script it tells how each ended."""

import json
import os
import sys

try:
    from airflow.sdk import DAG
except ImportError:
    from airflow import DAG

GIVEN = json.loads(os.environ["ORCHESTRATOR_CASES"])
sys.path += GIVEN["borrowed"]  # what lakesweep needs to work in Airflow's own process, behind what Airflow brought

from lakesweep.integrations.airflow import LakesweepOperator, LakesweepSensor  # noqa: E402 - after its path

KINDS = {"operator": LakesweepOperator, "sensor": LakesweepSensor}
PLACES = {
    "here": {"config": GIVEN["config"]},
    "command": {"config": GIVEN["config"], "command": GIVEN["command"]},
    "api": {"api": GIVEN["api"], "token": "{{ conn.lakesweep.password }}"},
}


def made(name, kind, place, **given):
    with DAG(name) as dag:
        KINDS[kind](task_id="clean", **PLACES[place], **given)
    return dag


DAGS = {name: made(name, **case) for name, case in GIVEN["cases"].items()}
globals().update(DAGS)  # where Airflow looks for them


def button(dag, task):
    """What Airflow's own page asks for: of 3 the stored form of the DAG, which has nothing but XCom."""
    try:
        from airflow.serialization.serialized_objects import DagSerialization  # noqa: PLC0415 - only there

        dag = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
    except ImportError:
        pass
    return dag.get_task("clean").get_extra_links(task, "Lakesweep run")


def ran(dag):
    (task,) = dag.test().get_task_instances()
    return {"state": str(getattr(task.state, "value", task.state)), "link": button(dag, task)}


if __name__ == "__main__":
    print("told " + json.dumps({name: ran(dag) for name, dag in DAGS.items()}))
