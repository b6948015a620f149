"""`lakesweep settings`: what holds for each table and where it comes from. Reads the settings and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from typer import Argument, Option

from lakesweep.cli import documents, exit_codes, options, screen, session
from lakesweep.cli.exit_codes import ExitCode
from lakesweep.model.errors import SettingsError, UnknownTable
from lakesweep.model.table import FACTS, FormatName

if TYPE_CHECKING:
    from lakesweep.settings.effective import Effective
    from lakesweep.settings.schema import Settings


def settings(
    targets: Annotated[
        list[str] | None,
        Argument(
            metavar="TARGET",
            help="tenant/dataset/table as configured, with globs such as 'acme/*/*'. Default: all that is configured.",
        ),
    ] = None,
    *,
    every: Annotated[bool, Option("--all", help="Show default values too; --json always includes them.")] = False,
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

        load.read_objects_by(session.read_settings_object)
        held, variable_of = load.load_traced(config)
        file, service = load.settings_file(config), effective.for_service(held, variable_of)
        found, code = _wanted(held, targets) if targets else (list(_configured(held)), ExitCode.DONE)
        code = max(code, _report_catalogs(held, found))
        scoped = [(scope, effective.for_table(held, variable_of, *scope.names)) for scope in found]
        if as_json:
            documents.write(_document(file, service, scoped))
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
    screen.long_line(console, f"{source}: {counted}", "bold")
    console.print()
    screen.line(console, "the service", "bold cyan")


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
    screen.long_line(console, f"{service}; `run --execute` {by_hand}")
    if not scope.is_configured(held):
        screen.line(console, "nothing is configured for this table alone", "dim")


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
            screen.long_line(console, f"{name}: a table's own metadata is not read here; {facts.retention}", "dim")
    if not every:
        screen.line(console, "settings with default values are hidden: --all shows them", "dim")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """A table, or whatever of a dataset or tenant the settings do not name more narrowly."""

    tenant: str
    dataset: str | None = None
    table: str | None = None
    format: FormatName | None = None

    @property
    def names(self) -> tuple[str, str | None, str | None]:
        return self.tenant, self.dataset, self.table

    @property
    def label(self) -> str:
        return "/".join(name or "*" for name in self.names)

    def is_configured(self, settings: Settings) -> bool:
        """Do the settings name it? A table need not be named to be cleaned."""
        owner = settings.tenant(self.tenant)
        source = owner.dataset(self.dataset) if owner else None
        return self.table is None or (source is not None and source.table(self.table) is not None)


def _wanted(settings: Settings, targets: Sequence[str]) -> tuple[list[Scope], ExitCode]:
    """Each scope once, however many targets name it. A target that names none does not keep the others back."""
    found: dict[Scope, None] = {}
    code = ExitCode.DONE
    for target in targets:
        try:
            found |= dict.fromkeys(_named(settings, target))
        except SettingsError as exc:
            screen.complain(exit_codes.sentence(exc))
            code = exit_codes.of_error(exc)
    return list(found), code


def _configured(settings: Settings) -> Iterator[Scope]:
    for tenant in settings.tenants:
        if not tenant.datasets:
            yield Scope(tenant=tenant.id)
        for dataset in tenant.datasets:
            for table in (None, *(one.name for one in dataset.tables)):
                yield Scope(tenant=tenant.id, dataset=dataset.id, table=table, format=dataset.format)


def _named(settings: Settings, target: str) -> Iterator[Scope]:
    """Any name in a dataset may be a table's: whether there is one, only the catalog knows."""
    from lakesweep.daemon import targets  # noqa: PLC0415 - heavy

    if targets.as_location(target):
        raise SettingsError(f"{target} is a location: name its table as tenant/dataset/table")
    near = [one for one in _configured(settings) if targets.may_match(target, one.tenant, one.dataset or "*")]
    if not near:
        raise UnknownTable(_no_match(settings, target))
    table = "".join(target.split("/", 2)[2:])
    is_pattern = not table or bool(set(table) & set("*?["))
    for scope in near:
        if scope.table is None:
            yield scope if is_pattern else replace(scope, table=table)
        elif targets.covers(target, scope.label):
            yield scope


def _no_match(settings: Settings, target: str) -> str:
    from lakesweep.daemon import targets  # noqa: PLC0415 - heavy

    if target == "":
        return "an empty target matches no table; use '*' for everything configured"
    known = ", ".join(scope.label for scope in _configured(settings) if scope.table is None)
    if not known:
        return f"nothing configured matches {target!r}: name a settings file with --config or LAKESWEEP_CONFIG"
    labels = [scope.label for scope in _configured(settings)]
    names = (part for one in labels for part in (one, one.partition("/")[0], "/".join(one.split("/", 2)[:2])))
    meant = targets.suggestion(target, names)
    return f"nothing configured matches {target!r}; {meant or f'there is {known}'}"
