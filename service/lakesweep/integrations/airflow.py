"""Airflow: `LakesweepOperator` cleans tables, `LakesweepSensor` waits for a table's run of the service.

    from lakesweep.integrations.airflow import LakesweepOperator

    LakesweepOperator(task_id="clean", targets=["acme/prod/*"], execute=True, config="/etc/lakesweep.toml")

A refusal is a skipped task by default, with its reason in the log and in XCom; `on_refused="fail"` makes it a failure.
Works with Airflow 2.9 and newer, and 3. With 2 use `command` or `api`: it needs an older SQLAlchemy.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from lakesweep.integrations.client import Client, Ended, LakesweepRefused, check, choice

if TYPE_CHECKING:
    _BaseOperator: Any = object
    _BaseSensor: Any = object
    _Link: Any = object
    AirflowFailException = AirflowSkipException = Exception
else:
    try:
        from airflow.sdk import BaseOperator as _BaseOperator
        from airflow.sdk import BaseOperatorLink as _Link
        from airflow.sdk.bases.sensor import BaseSensorOperator as _BaseSensor
        from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
    except ImportError:
        from airflow.exceptions import AirflowFailException, AirflowSkipException
        from airflow.models.baseoperator import BaseOperator as _BaseOperator
        from airflow.models.baseoperatorlink import BaseOperatorLink as _Link
        from airflow.sensors.base import BaseSensorOperator as _BaseSensor

__all__ = ["LakesweepLink", "LakesweepOperator", "LakesweepSensor"]

LINK = "lakesweep_link"
"""XCom key of the run's page."""


class LakesweepLink(_Link):  # type: ignore[misc]
    """A button that opens the run in the service's dashboard."""

    name = "Lakesweep run"

    @property
    def xcom_key(self) -> str:
        return LINK

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Airflow 3 asks the task that has just ended and keeps the link in XCom. Airflow 2 asks its web server, which
        only has XCom."""
        if (link := getattr(operator, "run_link", None)) is not None:
            return str(link)
        from airflow.models import XCom  # noqa: PLC0415 - only there

        return XCom.get_value(key=LINK, ti_key=ti_key) or ""


class LakesweepOperator(_BaseOperator):  # type: ignore[misc]
    """Expire snapshots and delete what nothing references, of every table that `targets` names."""

    template_fields: Sequence[str] = ("targets", "config", "command", "api", "token")
    operator_extra_links = (LakesweepLink(),)
    run_link = ""
    """The page of the run, when it has ended."""

    def __init__(
        self,
        *,
        targets: Sequence[str] | str,
        execute: bool = False,
        on_refused: Literal["skip", "fail"] = "skip",
        config: str | None = None,
        command: str | None = None,
        api: str | None = None,
        token: str | None = None,
        older_than: timedelta | None = None,
        retain_last: int | None = None,
        grace: timedelta | None = None,
        **operator: Any,
    ) -> None:
        super().__init__(**operator)
        self.targets = [targets] if isinstance(targets, str) else list(targets)
        self.executes = execute
        self.on_refused = choice(on_refused)
        self.config, self.command, self.api, self.token = config, command, api, token
        self.rules = {"older_than": older_than, "retain_last": retain_last, "grace": grace}

    def execute(self, context: Any) -> list[dict[str, Any]]:
        """The result of each table, for XCom."""
        client = Client(config=self.config, command=self.command, api=self.api, token=self.token)
        ended = client.run(self.targets, execute=self.executes, rules=self.rules)
        for one in ended:
            self.log.info("%s", one.sentence())
        _judge(self, ended, context)
        return [_document(one) for one in ended]


class LakesweepSensor(_BaseSensor):  # type: ignore[misc]
    """Wait until the service's newest run of a table has ended; fails or skips when it was refused.

    `after` leaves out runs that began before: `after="{{ dag_run.start_date }}"` waits for one of this DAG run's time.
    """

    template_fields: Sequence[str] = ("table", "api", "token", "after")
    operator_extra_links = (LakesweepLink(),)
    run_link = ""

    def __init__(
        self,
        *,
        table: str,
        api: str,
        token: str | None = None,
        on_refused: Literal["skip", "fail"] = "fail",
        after: datetime | str | None = None,
        **sensor: Any,
    ) -> None:
        super().__init__(**sensor)
        self.table, self.api, self.token, self.after = table, api, token, after
        self.on_refused = choice(on_refused)

    def poke(self, context: Any) -> bool:
        last = Client(api=self.api, token=self.token).last(self.table, _moment(self.after))
        if last is None or last.outcome == "running":
            return False
        self.log.info("%s", last.sentence())
        _judge(self, [last], context)
        return True


def _judge(task: Any, ended: Sequence[Ended], context: Any) -> None:
    """Store the link and a refusal's reason where the UI shows them, and end the task as configured."""
    bad = [one for one in ended if one.outcome in ("refused", "failed")]
    task.run_link = next((one.link for one in (*bad, *ended) if one.link), "")
    if task.run_link:
        context["ti"].xcom_push(key=LINK, value=task.run_link)
    try:
        check(ended)
    except LakesweepRefused as exc:
        context["ti"].xcom_push(key="return_value", value=[_document(one) for one in ended])  # which Airflow drops now
        context["ti"].xcom_push(key="lakesweep_refused", value=str(exc))
        if task.on_refused == "fail":
            raise AirflowFailException(str(exc)) from exc
        raise AirflowSkipException(str(exc)) from exc


def _moment(given: datetime | str | None) -> datetime | None:
    """A template gives text; a time without a zone is UTC, like Airflow's own."""
    moment = datetime.fromisoformat(given) if isinstance(given, str) else given
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


def _document(one: Ended) -> dict[str, Any]:
    return {name: getattr(one, name) for name in ("table", "run_id", "outcome", "code", "reason", "files", "bytes")}
