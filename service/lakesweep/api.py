"""The public Python API: plan, run and explain from a notebook, a script or a DAG. Everything else is private.

    import lakesweep
    from datetime import timedelta

    plan = lakesweep.plan("s3://lake/shop/orders", older_than=timedelta(days=3), retain_last=5)
    plan.summary, plan.refused, plan.orphans.to_pandas()

`x` is a location (`s3://…`, `file://…`, a path), a pyiceberg `Table`, a deltalake `DeltaTable`, a configured
`tenant/dataset/table`, or a list of these. One table gives one result, a list a `Results`. The rules and minimums are
those of the command line, settings come from `config` or LAKESWEEP_CONFIG where there is one, and nothing is printed. A
plan without a settings file needs no state directory and leaves nothing behind.

A refusal is a value (`.refused`), never an exception. A target that names no table, and invalid settings, raise
`LakesweepError`. Each function has an async twin, for use inside an event loop.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack, overload

from lakesweep.aio import StopRequest
from lakesweep.model.errors import LakesweepError, SettingsError
from lakesweep.python import calls
from lakesweep.python.results import Explanation, Plan, Refusal, Report, Results, Run, Summary, plan_of, run_of
from lakesweep.settings.cascade import override_for_call

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyiceberg.table import Table

    One: TypeAlias = str | os.PathLike[str] | Table | DeltaTable
else:
    One = Any

Many: TypeAlias = list[One] | tuple[One, ...]


class Rules(TypedDict, total=False):
    """The keyword arguments of every function, for type checkers; `plan` says what each means."""

    older_than: timedelta | None
    retain_last: int | None
    grace: timedelta | None
    config: str | os.PathLike[str] | None
    format: str | None
    root: str | os.PathLike[str] | None


__all__ = [
    "Explanation",
    "LakesweepError",
    "Plan",
    "Refusal",
    "Report",
    "Results",
    "Run",
    "Summary",
    "aexplain",
    "aplan",
    "areport",
    "arun",
    "explain",
    "plan",
    "report",
    "run",
]


@overload
def plan(x: Many, **rules: Unpack[Rules]) -> Results[Plan]: ...
@overload
def plan(x: One, **rules: Unpack[Rules]) -> Plan: ...
def plan(
    x: One | Many,
    *,
    older_than: timedelta | None = None,
    retain_last: int | None = None,
    grace: timedelta | None = None,
    config: str | os.PathLike[str] | None = None,
    format: str | None = None,
    root: str | os.PathLike[str] | None = None,
) -> Plan | Results[Plan]:
    """Plan what a run would expire and delete, and what stays and why. Changes nothing.

    Rules: `older_than` (timedelta: snapshots older than this may expire), `retain_last` (snapshots of each branch that
    stay), `grace` (timedelta: unreferenced files stay for this long, 24 hours at least). Also `config` (a settings
    file), `format` and `root` (as `--format` and `--root`).
    """
    rules = _rules(older_than, retain_last, grace, config, format, root)
    return calls.blocking(lambda stop: _plan(x, stop, rules))


@overload
async def aplan(x: Many, **rules: Unpack[Rules]) -> Results[Plan]: ...
@overload
async def aplan(x: One, **rules: Unpack[Rules]) -> Plan: ...
async def aplan(
    x: One | Many,
    *,
    older_than: timedelta | None = None,
    retain_last: int | None = None,
    grace: timedelta | None = None,
    config: str | os.PathLike[str] | None = None,
    format: str | None = None,
    root: str | os.PathLike[str] | None = None,
) -> Plan | Results[Plan]:
    """`plan`, in the caller's own event loop."""
    return await _plan(x, None, _rules(older_than, retain_last, grace, config, format, root))


@overload
def run(x: Many, *, execute: bool = False, **rules: Unpack[Rules]) -> Results[Run]: ...
@overload
def run(x: One, *, execute: bool = False, **rules: Unpack[Rules]) -> Run: ...
def run(
    x: One | Many,
    *,
    execute: bool = False,
    older_than: timedelta | None = None,
    retain_last: int | None = None,
    grace: timedelta | None = None,
    config: str | os.PathLike[str] | None = None,
    format: str | None = None,
    root: str | os.PathLike[str] | None = None,
) -> Run | Results[Run]:
    """Expire snapshots, then delete what nothing references; without `execute=True` a dry run.

    The rules are those of `plan`. With `execute=True` the run, its journal and its audit trail are kept where the
    settings say, by default in ~/.local/state/lakesweep, and a `dry_run = true` of the tenant, dataset or table still
    wins.
    """
    rules = _rules(older_than, retain_last, grace, config, format, root)
    return calls.blocking(lambda stop: _run(x, stop, rules, execute=execute))


@overload
async def arun(x: Many, *, execute: bool = False, **rules: Unpack[Rules]) -> Results[Run]: ...
@overload
async def arun(x: One, *, execute: bool = False, **rules: Unpack[Rules]) -> Run: ...
async def arun(
    x: One | Many,
    *,
    execute: bool = False,
    older_than: timedelta | None = None,
    retain_last: int | None = None,
    grace: timedelta | None = None,
    config: str | os.PathLike[str] | None = None,
    format: str | None = None,
    root: str | os.PathLike[str] | None = None,
) -> Run | Results[Run]:
    """`run`, in the caller's own event loop."""
    return await _run(x, None, _rules(older_than, retain_last, grace, config, format, root), execute=execute)


def explain(
    path: str | os.PathLike[str],
    *,
    table: One | None = None,
    older_than: timedelta | None = None,
    retain_last: int | None = None,
    grace: timedelta | None = None,
    config: str | os.PathLike[str] | None = None,
    format: str | None = None,
    root: str | os.PathLike[str] | None = None,
) -> Explanation:
    """Why one file stays, or from when it may be deleted. `table` is what `plan` takes; by default the configured table
    that contains the path. The rules are those of `plan`."""
    rules = _rules(older_than, retain_last, grace, config, format, root)
    return calls.blocking(lambda _: calls.explanation(os.fspath(path), table, **rules))


async def aexplain(
    path: str | os.PathLike[str],
    *,
    table: One | None = None,
    older_than: timedelta | None = None,
    retain_last: int | None = None,
    grace: timedelta | None = None,
    config: str | os.PathLike[str] | None = None,
    format: str | None = None,
    root: str | os.PathLike[str] | None = None,
) -> Explanation:
    """`explain`, in the caller's own event loop."""
    rules = _rules(older_than, retain_last, grace, config, format, root)
    return await calls.explanation(os.fspath(path), table, **rules)


def report(*names: str | Sequence[str], fresh: bool = False, config: str | os.PathLike[str] | None = None) -> Report:
    """What all configured tables store and what could be deleted, from the newest plan of each; `fresh` plans first.

    `names` are tenants, tenant/dataset or globs, also in a list; by default everything that is configured.
    """
    return calls.blocking(lambda stop: calls.report(_names(names), fresh=fresh, config=_path(config), stop=stop))


async def areport(
    *names: str | Sequence[str], fresh: bool = False, config: str | os.PathLike[str] | None = None
) -> Report:
    """`report`, in the caller's own event loop."""
    return await calls.report(_names(names), fresh=fresh, config=_path(config), stop=None)


async def _plan(x: One | Many, stop: StopRequest | None, rules: dict[str, Any]) -> Plan | Results[Plan]:
    made = [plan_of(*ended) for ended in await calls.runs(_given(x), execute=False, stop=stop, **rules)]
    return Results(made) if isinstance(x, list | tuple) else _only(x, made)


async def _run(x: One | Many, stop: StopRequest | None, rules: dict[str, Any], *, execute: bool) -> Run | Results[Run]:
    ended = await calls.runs(_given(x), execute=execute, stop=stop, **rules)
    made = [run_of(*one, executed=execute) for one in ended]
    return Results(made) if isinstance(x, list | tuple) else _only(x, made)


def _given(x: One | Many) -> Sequence[One]:
    return x if isinstance(x, list | tuple) else (x,)


def _names(given: Sequence[str | Sequence[str]]) -> list[str]:
    return [name for one in given for name in ([one] if isinstance(one, str) else one)]


def _only(x: Any, made: list[Any]) -> Any:
    if len(made) != 1:
        raise SettingsError(f"{x} names {len(made)} tables: give it in a list to have a result for each")
    return made[0]


def _path(config: str | os.PathLike[str] | None) -> Path | None:
    return Path(config) if config is not None else None


def _rules(  # noqa: PLR0917 - in the order of every public function
    older_than: timedelta | None,
    retain_last: int | None,
    grace: timedelta | None,
    config: str | os.PathLike[str] | None,
    format: str | None,
    root: str | os.PathLike[str] | None,
) -> dict[str, Any]:
    """What every function takes beside the table, as the calls take it."""
    return {
        "override": override_for_call(older_than=older_than, retain_last=retain_last, grace=grace),
        "config": _path(config),
        "format": format,
        "root": os.fspath(root) if root is not None else None,
    }
