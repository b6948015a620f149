"""A Spark Connect server elsewhere. Blocking."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lakesweep.engines.spark import startup
from lakesweep.engines.spark.config import ALWAYS, DEFAULTS, SparkConfig
from lakesweep.model.errors import EngineFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONNECT_TRIES = 4


class ConnectBackend:
    """The driver is a Spark Connect server elsewhere."""

    def __init__(self, config: SparkConfig, remote: str) -> None:
        self._config = config
        self._remote = remote

    def start(self) -> SparkSession:
        try:
            from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415  # heavy
            from pyspark.sql.connect.session import SparkSession as Session  # noqa: PLC0415  # heavy
        except ImportError as exc:
            raise EngineFailed(f'Spark Connect needs more packages, pip install "lakesweep[connect]": {exc}') from exc
        session = Session.builder.remote(self._remote).create()
        # The default retries for ten minutes; a table that fails is tried again anyway.
        session.client.set_retry_policies([DefaultPolicy(max_retries=_CONNECT_TRIES)])
        for name, value in {**DEFAULTS, **self._config.properties, **ALWAYS}.items():
            session.conf.set(name, value)
        return session

    def alive(self, session: SparkSession) -> bool:
        """Does the server answer, and does it still know the session?"""
        try:
            startup.check_reachable(self._remote)
            session.conf.get("spark.sql.session.timeZone")
        except Exception:  # noqa: BLE001  # whatever it says, it is no answer
            return False
        return True

    def working(self, session: SparkSession) -> bool:  # noqa: ARG002  # the server alone knows its executors
        try:
            startup.check_reachable(self._remote)
        except EngineFailed:
            return False
        return True

    def lost(self) -> str:
        return f"the Spark Connect server {self._remote.partition(';')[0]} is gone"

    def label(self, session: SparkSession, group: str, description: str) -> None:  # noqa: ARG002  # Connect has none
        """Spark Connect uses tags instead of job groups."""
        session.clearTags()
        session.addTag(group)

    def cancel(self, session: SparkSession, group: str) -> None:
        session.interruptTag(group)

    def stop(self, session: SparkSession) -> None:
        """Stop the session; the server keeps running."""
        session.stop()

    def forget(self, session: SparkSession) -> None:
        """Close the connection if it is still open."""
        with suppress(Exception):
            session.client.close()
