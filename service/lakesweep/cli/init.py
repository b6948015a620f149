"""`lakesweep init` and `doctor`: write a first settings file; check what is installed and which stores answer."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from lakesweep.cli import documents, options, screen, session
from lakesweep.cli.exit_codes import ExitCode
from lakesweep.model.errors import SettingsError

if TYPE_CHECKING:
    from lakesweep.daemon.doctor import Finding
    from lakesweep.daemon.first_settings import Tenant

DEFAULT_TENANT = "main"
_STYLES = {"ok": "green", "absent": "yellow", "failed": "red"}


def init(
    place: Annotated[
        str | None,
        Argument(
            metavar="LOCATION", help="Where the tables are: s3://…, file://… or a directory. For a catalog: their root."
        ),
    ] = None,
    *,
    catalog: Annotated[
        list[str] | None,
        options.option(
            "--catalog",
            metavar="KEY=VALUE",
            help="A property of an Iceberg catalog, such as type=rest; may be repeated.",
        ),
    ] = None,
    tenant: Annotated[
        str | None,
        options.option(
            "--tenant",
            metavar="ID",
            help=f"Name of the owner of these tables, or '*': each directory is a tenant. Default: {DEFAULT_TENANT}.",
        ),
    ] = None,
    endpoint: Annotated[
        str | None, Option("--endpoint", metavar="URL", help="Where an S3-compatible store listens.")
    ] = None,
    output: Annotated[Path, Option("--output", metavar="FILE", help="The file to write.")] = Path("lakesweep.toml"),
    force: Annotated[bool, Option("--force", help="Replace the file if it exists.")] = False,
    debug: options.Debug = False,
) -> None:
    """Write a first settings file, with dry_run = true.

    Finds tables at LOCATION, and in the catalog that --catalog names, and writes them down with comments. Without
    LOCATION it asks, on a terminal. Changes nothing else, and no secret goes into the file.

    Exit codes: 0 written, 2 bad usage or settings or nothing found, 4 the store or catalog does not answer.
    """

    def work() -> ExitCode:
        _write(_wanted(place, catalog or [], tenant), endpoint, output, force=force)
        return ExitCode.DONE

    raise typer.Exit(session.guarded(work, debug=debug))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    place: str
    catalog: dict[str, str]
    tenant: str


def _wanted(place: str | None, catalog: list[str], tenant: str | None) -> _Wanted:
    given = _properties(catalog)
    if place is not None:
        return _Wanted(place=place, catalog=given, tenant=tenant or DEFAULT_TENANT)
    if not sys.stdin.isatty():
        raise SettingsError("give a location: `lakesweep init s3://lake/tables`, or a directory")
    place = _prompt("Where are the tables (s3://…, or a directory)?")
    if not given:
        kind = _prompt("Type of their Iceberg catalog (rest, sql, glue, hive, …; empty if there is none)?", default="")
        names = ("type", "uri", "name") if kind == "sql" else ("type", "uri")
        given = {"type": kind} | {name: _prompt(f"Its {name} (optional)?", default="") for name in names[1:] if kind}
        given = {name: answer for name, answer in given.items() if answer}
    if tenant is None and not given and typer.confirm("Is each directory there a tenant of its own?", err=True):
        tenant = "*"
    return _Wanted(place=place, catalog=given, tenant=tenant or DEFAULT_TENANT)


def _prompt(question: str, default: str | None = None) -> str:
    answer: str = typer.prompt(question, default=default, show_default=False, err=True)
    return answer.strip()


def _properties(given: list[str]) -> dict[str, str]:
    wrong = [one for one in given if "=" not in one]
    if wrong:
        raise SettingsError(f"--catalog {wrong[0]!r}: expected KEY=VALUE, such as type=rest")
    return dict(one.split("=", 1) for one in given)


def _write(wanted: _Wanted, endpoint: str | None, output: Path, *, force: bool) -> None:
    from lakesweep.daemon import first_settings, targets  # noqa: PLC0415 - heavy
    from lakesweep.settings import catalogs  # noqa: PLC0415 - heavy
    from lakesweep.settings.schema import Settings  # noqa: PLC0415 - heavy

    if fault := catalogs.type_fault(wanted.catalog):
        raise SettingsError(f"--catalog {fault}")
    if output.exists() and not force:
        raise SettingsError(f"{output} already exists: --force replaces it, --output names another")
    location = targets.as_location(wanted.place)
    if location is None:
        raise SettingsError(f"{wanted.place!r} is neither an address nor an existing directory")
    if location.is_local and not Path(location.path).is_dir():
        what = "is not a directory" if Path(location.path).exists() else "no such directory"
        raise SettingsError(f"{wanted.place}: {what}")
    root = targets.without_slash(location).raw.removeprefix("file://")
    s3 = {"endpoint_url": endpoint, "path_style": True} if endpoint else {}
    settings = Settings.model_validate({"storage": {"s3": s3}})
    found = asyncio.run(first_settings.look(settings, root, wanted.tenant, wanted.catalog))
    datasets = [one for tenant in found for one in tenant.datasets]
    if not datasets:
        raise SettingsError(_nothing(wanted, found))
    output.write_text(first_settings.text(found, endpoint=endpoint), encoding="utf-8")
    counts: dict[str, int] = {}
    for one in datasets:
        counts[one.settings.format] = counts.get(one.settings.format, 0) + len(one.tables)
    kinds = ", ".join(f"{number} {kind}" for kind, number in counts.items())
    owners = f" of {screen.counted(len(found), 'tenant')}" if len(found) > 1 else ""
    console = screen.output()
    tables = screen.counted(sum(counts.values()), "table")
    screen.line(console, f"{output}: {tables}{owners} ({kinds}), in dry run")
    if wanted.catalog and not any(one.settings.catalog for one in datasets):
        screen.line(console, _nothing_in_catalog(wanted.catalog))
    for tenant in found:
        if tenant.without_catalog:
            screen.line(console, f"{tenant.root}: {_needs_catalog(tenant)}")
    screen.line(console, "next:")
    screen.line(console, f"  lakesweep plan --config {output}")
    screen.line(console, f"  lakesweep serve --config {output}")


def _nothing(wanted: _Wanted, found: list[Tenant]) -> str:
    if wanted.catalog:
        return _nothing_in_catalog(wanted.catalog)
    needing = next((tenant for tenant in found if tenant.without_catalog), None)
    if needing is not None:
        return f"{needing.root}: {_needs_catalog(needing)}"
    return f"no tables found in {wanted.place}: give the directory that holds them, or a catalog: --catalog type=…"


def _nothing_in_catalog(catalog: dict[str, str]) -> str:
    name = catalog.get("name", "iceberg")
    own = f"; a SQL catalog has only what was written under its name ({name}): --catalog name=…"
    return f"the catalog lists no tables{own if catalog.get('type') == 'sql' else ''}"


def _needs_catalog(tenant: Tenant) -> str:
    tables = screen.counted(len(tenant.without_catalog), "Iceberg table")
    first = tenant.without_catalog[0]
    return f"{tables} found, first {first}, which only a catalog can open: --catalog type=… --catalog uri=…"


def doctor(as_json: options.Json = False, config: options.Config = None, debug: options.Debug = False) -> None:
    """Check what is installed and how each store answers.

    Looks at Python, the compiled parts, Spark and Java, the clients of catalogs, reads the schema version of the state
    store, and connects to every configured store and catalog with the credentials of this process. Changes nothing.

    Exit codes: 0 all is well, 2 bad usage or settings, 4 something is broken or does not answer.
    """
    raise typer.Exit(session.guarded(lambda: _look(config, as_json=as_json), debug=debug))


def _look(config: Path | None, *, as_json: bool) -> ExitCode:
    from lakesweep.daemon import doctor as looking  # noqa: PLC0415 - heavy
    from lakesweep.settings import load  # noqa: PLC0415 - heavy

    load.read_objects_by(session.read_settings_object)

    async def all_of_it() -> list[Finding]:
        settings, file = load.load(config), load.settings_file(config)
        found = list(looking.installed())
        detail = str(file) if file else "none: --config or LAKESWEEP_CONFIG names one"
        found.append(looking.Finding(name="settings", health=looking.Health.OK, detail=detail))
        found += [finding async for finding in looking.answers(settings)]
        return found

    found = asyncio.run(all_of_it())
    if as_json:
        rows = [{"name": one.name, "health": one.health.value, "detail": one.detail} for one in found]
        documents.write({"checks": rows})
    else:
        console = screen.output()
        shown = screen.table(console, "what", "", "detail", paths=("what", "detail"))
        for one in found:
            health = one.health.value
            shown.add_row(screen.text(one.name), screen.text(health, _STYLES[health]), screen.text(one.detail))
        console.print(shown)
    return ExitCode.FAILED if any(one.health is looking.Health.FAILED for one in found) else ExitCode.DONE
