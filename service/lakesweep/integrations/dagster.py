"""Dagster: `lakesweep_op` cleans tables, `orphan_check` is an asset check that fails on too much waste.

from lakesweep.integrations.dagster import lakesweep_op, orphan_check

clean = lakesweep_op("clean", targets=["acme/prod/*"], execute=True, config="/etc/lakesweep.toml")
check = orphan_check(asset=orders, target="acme/prod/orders", max_bytes=10 * 1024**3)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import dagster

from lakesweep.integrations.client import Client, LakesweepRefused, check, choice

__all__ = ["lakesweep_op", "orphan_check"]


def lakesweep_op(
    name: str,
    *,
    targets: Sequence[str],
    execute: bool = False,
    on_refused: Literal["skip", "fail"] = "skip",
    config: str | None = None,
    command: str | None = None,
    api: str | None = None,
    token: str | None = None,
    **rules: Any,
) -> Any:
    """An op that cleans tables. A refusal is logged and the op succeeds, or it fails, as configured."""
    choice(on_refused)

    def cleaning(context: Any) -> list[dict[str, Any]]:
        client = Client(config=config, command=command, api=api, token=token)
        ended = client.run(targets, execute=execute, rules=rules)
        for one in ended:
            context.log.info(one.sentence())
        try:
            check(ended)
        except LakesweepRefused as exc:
            if on_refused == "fail":
                raise dagster.Failure(description=str(exc), allow_retries=False) from exc
            context.log.warning("refused: %s", exc)
        return [one.document for one in ended]

    del cleaning.__annotations__["context"]  # Dagster takes a type of its own there, or none
    return dagster.op(name=name, out=dagster.Out(list))(cleaning)


def orphan_check(
    *,
    asset: Any,
    target: str,
    max_bytes: int = 0,
    name: str = "orphans",
    config: str | None = None,
    command: str | None = None,
    api: str | None = None,
    token: str | None = None,
) -> Any:
    """A check that plans the table, changes nothing, and fails above `max_bytes` that could be deleted."""

    def checking() -> Any:
        client = Client(config=config, command=command, api=api, token=token)
        (ended,) = client.run([target], execute=False)
        passed = ended.outcome == "dry_run" and ended.bytes <= max_bytes
        metadata = {"files": ended.files, "bytes": ended.bytes, "outcome": ended.outcome, "reason": ended.reason or ""}
        return dagster.AssetCheckResult(passed=passed, metadata=metadata, description=ended.sentence())

    return dagster.asset_check(asset=asset, name=name)(checking)
