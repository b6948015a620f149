"""`lakesweep settings`: what holds for each table and where it comes from. Reads the settings and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from lakesweep.cli import documents, options, scopes, screen, session, settings_object
from lakesweep.cli.exit_codes import ExitCode
from lakesweep.cli.scopes import Scope
from lakesweep.model.errors import SettingsError
from lakesweep.model.table import FACTS

if TYPE_CHECKING:
    from lakesweep.settings.effective import Effective
    from lakesweep.settings.schema import Settings


def settings(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TARGET",
            help="tenant/dataset/table as configured, with globs such as 'acme/*/*'. Default: all that is configured.",
        ),
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="Show default values too; --json always includes them.")] = False,
    as_json: options.Json = False,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """Check the settings and show what applies to a table.

    Shows where each value comes from: default, global, tenant, dataset, table, or an environment variable. Needs no
    catalog, storage or state store, so a file can be checked before it is rolled out: also types and properties of
    catalogs, and whether their clients are installed here. Secrets are never shown.

    Exit codes: 0 the settings are valid, 2 bad usage or settings, or a target that names nothing configured.
    """

    def work() -> ExitCode:
        from lakesweep.settings import effective, load  # noqa: PLC0415 - heavy

        load.read_objects_by(settings_object.read)
        held, variable_of = load.load_traced(config)
        file, service = load.settings_file(config), effective.for_service(held, variable_of)
        found, code = scopes.wanted(held, targets) if targets else (list(scopes.configured(held)), ExitCode.DONE)
        code = max(code, _report_catalogs(held, found))
        scoped = [(scope, effective.for_table(held, variable_of, *scope.names)) for scope in found]
        if as_json:
            print(documents.dumps(_document(file, service, scoped)))
            return code
        console = screen.output()
        if not targets:
            _show_head(console, held, file, code)
            _show_values(console, service, None, every=every)
        for scope, values in scoped:
            _show_scope(console, held, scope)
            _show_values(console, values, scope, every=every)
        _show_foot(console, found, every=every)
        return code

    raise typer.Exit(session.guarded(work, debug=debug))


def _document(
    file: Path | None, service: Iterable[Effective], scoped: Iterable[tuple[Scope, Iterable[Effective]]]
) -> dict[str, Any]:
    def values(shown: Iterable[Effective]) -> dict[str, Any]:
        return {one.name: {"value": one.value, "level": one.level, "variable": one.variable} for one in shown}

    tables = [{"table": scope.label, "format": scope.format, "settings": values(shown)} for scope, shown in scoped]
    return {"file": str(file) if file else None, "service": values(service), "tables": tables}


def _report_catalogs(held: Settings, found: Sequence[Scope]) -> ExitCode:
    """What is known of the catalogs without connecting to them."""
    from lakesweep.settings import catalogs  # noqa: PLC0415 - heavy

    code = ExitCode.DONE
    names = {(scope.tenant, scope.dataset) for scope in found}
    for tenant in held.tenants:
        for dataset in tenant.datasets:
            if dataset.catalog is None or (tenant.id, dataset.id) not in names:
                continue
            if fault := catalogs.type_fault(dataset.catalog):
                screen.complain(f"tenants[{tenant.id}].datasets[{dataset.id}].catalog: {fault}")
                code = ExitCode.USAGE
            for remark in catalogs.remarks(dataset.catalog):
                screen.complain(f"tenants[{tenant.id}].datasets[{dataset.id}].catalog: {remark}")
    return code


def _show_head(console: Console, held: Settings, file: Path | None, code: ExitCode) -> None:
    datasets = sum(len(tenant.datasets) for tenant in held.tenants)
    counted = f"{screen.counted(len(held.tenants), 'tenant')}, {screen.counted(datasets, 'dataset')}"
    source = (
        f"{file} is {'valid' if code is ExitCode.DONE else 'invalid'}"
        if file
        else "no settings file (--config or LAKESWEEP_CONFIG names one)"
    )
    console.print(screen.text(f"{source}: {counted}", "bold"), soft_wrap=True)
    console.print()
    console.print(screen.text("the service", "bold cyan"))


def _show_scope(console: Console, held: Settings, scope: Scope) -> None:
    """Its name, and what the settings come to: what the service does by itself, and what a person's command does."""
    from lakesweep.settings.cascade import cleanup_for, policy_for  # noqa: PLC0415 - heavy

    cleanup = cleanup_for(held, *scope.names)
    when = f"at {cleanup.cron} (UTC)" if cleanup.cron else f"every {_shown_value(cleanup.cleanup_interval_hours)} h"
    if not cleanup.enabled:
        service = "the service skips it: enabled = false"
    elif cleanup.dry_run:
        service = f"the service plans it {when} and deletes nothing: dry_run = true"
    else:
        service = f"the service cleans it {when}"
    try:
        spared = policy_for(held, *scope.names, execute=True).dry_run
        by_hand = "deletes nothing either: its own dry_run = true wins" if spared else "cleans it"
    except SettingsError as exc:
        by_hand = f"is refused: {exc}"
    console.print(Text.assemble(screen.text(scope.label, "bold cyan"), f"  {scope.format or ''}"))
    console.print(screen.text(f"{service}; `run --execute` {by_hand}"), soft_wrap=True)
    if not scope.is_configured(held):
        console.print(screen.text("nothing is configured for this table alone", "dim"))


def _show_values(console: Console, values: Iterable[Effective], scope: Scope | None, *, every: bool) -> None:
    shown = screen.table(console, "setting", "value", "from", paths=("setting", "value", "from"))
    for one in values:
        if every or one.level != "default":
            shown.add_row(one.name, screen.text(_shown_value(one.value)), screen.text(_origin(one, scope)))
    console.print(shown if shown.row_count else screen.text("every setting has its default"))
    console.print()


def _show_foot(console: Console, found: Sequence[Scope], *, every: bool) -> None:
    for name, facts in FACTS.items():
        if any(scope.format is name for scope in found):
            note = f"{name}: a table's own metadata is not read here; {facts.retention}"
            console.print(screen.text(note, "dim"), soft_wrap=True)
    if not every:
        console.print(screen.text("settings with default values are hidden: --all shows them", "dim"))


def _shown_value(value: Any) -> str:
    """As the settings file spells it, but for the quotes."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)


def _origin(one: Effective, scope: Scope | None) -> str:
    named = {"tenant": scope.tenant, "dataset": scope.dataset, "table": scope.table} if scope else {}
    level = f"{one.level} {named.get(one.level) or ''}".rstrip()
    return f"{level} ({one.variable})" if one.variable else level
