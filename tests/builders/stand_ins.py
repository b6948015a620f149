"""The few names of Airflow and Dagster that the integrations use, where neither is installed. The real ones are tried
by tests/interop/test_orchestrators.py."""

from __future__ import annotations

import importlib
import logging
import sys
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class Skip(Exception):
    """AirflowSkipException."""


class Fail(Exception):
    """AirflowFailException, or Dagster's Failure."""

    def __init__(self, description: str = "", **_: Any) -> None:
        super().__init__(description)


class Task:
    """BaseOperator and BaseSensorOperator."""

    def __init__(self, **given: Any) -> None:
        self.task_id = given["task_id"]
        self.log = logging.getLogger("airflow.task")


class Pushed(dict[str, Any]):
    """A task instance's XCom, by key; it is also the context that holds the task instance."""

    def xcom_push(self, *, key: str, value: Any) -> None:
        self[key] = value

    @property
    def context(self) -> dict[str, Any]:
        return {"ti": self}


EXCEPTIONS = {"AirflowSkipException": Skip, "AirflowFailException": Fail}
AIRFLOW = {
    3: {
        "airflow.sdk": {"BaseOperator": Task, "BaseOperatorLink": object},
        "airflow.sdk.bases.sensor": {"BaseSensorOperator": Task},
        "airflow.sdk.exceptions": EXCEPTIONS,
    },
    2: {
        "airflow.exceptions": EXCEPTIONS,
        "airflow.models.baseoperator": {"BaseOperator": Task},
        "airflow.models.baseoperatorlink": {"BaseOperatorLink": object},
        "airflow.sensors.base": {"BaseSensorOperator": Task},
    },
}


@contextmanager
def integration(name: str, modules: dict[str, dict[str, Any]]):
    """`lakesweep.integrations.NAME`, imported anew over these modules alone."""
    ours = f"lakesweep.integrations.{name}"
    made = dict.fromkeys([".".join(path.split(".")[:end]) for path in modules for end in range(1, 5)])
    before = {path: sys.modules.pop(path, None) for path in (*made, ours)}
    try:
        for path in made:
            sys.modules[path] = ModuleType(path)
            sys.modules[path].__path__ = []
            vars(sys.modules[path]).update(modules.get(path, {}))
        yield importlib.import_module(ours)
    finally:
        for path, module in before.items():
            sys.modules.pop(path, None)
            if module is not None:
                sys.modules[path] = module
