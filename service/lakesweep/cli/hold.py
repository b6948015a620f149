"""`lakesweep stop`, `pause`, `holds` and `resume`: hold tables back, show what is held, and let it go again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from lakesweep.cleanup import report as reports
from lakesweep.cli import completion, documents, lists, options, screen, session, spans
from lakesweep.cli.exit_codes import ExitCode
from lakesweep.model.errors import SettingsError, UnknownTable

if TYPE_CHECKING:
    from lakesweep.cli.session import Session

Scope = Annotated[
    str,
    typer.Argument(
        metavar="SCOPE",
        autocompletion=completion.targets,
        help="Tenant, tenant/dataset or tenant/dataset/table, globs allowed; all: '*'.",
    ),
]


def pause(
    scope: Scope,
    *,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Shown wherever the hold is listed.")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="When it ends by itself, like 2026-12-24T18:00; UTC if no zone."),
    ] = None,
    lasts: Annotated[
        str | None, typer.Option("--for", metavar="SPAN", help="How long it lasts: 90m, 12h, 3d or 2w.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also hold a table that does not exist (yet); contacts no catalog.")
    ] = False,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """Pause tables until they are resumed, or until a time.

    Applies to the service and to the command line, on all replicas. Plans still work; a run that deletes ends before
    its next request. A pause never shortens an earlier one: resume that first.

    Exit codes: 0 held, 2 bad usage or settings or no such scope, 4 the state store cannot be used.
    """

    async def body(opened: Session) -> ExitCode:
        from lakesweep.daemon import holds  # noqa: PLC0415 - heavy
        from lakesweep.daemon.audit_factory import this_user  # noqa: PLC0415 - heavy
        from lakesweep.ports.state import Hold  # noqa: PLC0415 - heavy

        app = opened.app
        if until is not None or lasts is not None:
            spans.end(app.clock.now(), until=until, lasts=lasts)  # before any catalog is queried
        if not force:
            await _check(opened, scope, "--force holds it anyway")
        now = app.clock.now()
        ends_at = spans.end(now, until=until, lasts=lasts)
        hold = Hold(scope=scope, since=now, by=this_user().who, reason=reason, ends_at=ends_at)
        stands = await holds.pause(app, hold)
        end = f" until {screen.moment(stands.ends_at)}" if stands.ends_at else ""
        screen.output().print(screen.text(f"{scope}: held{end}"))
        return ExitCode.DONE

    raise typer.Exit(session.run(body, config=config, debug=debug))


def stop(
    scope: Annotated[
        str | None,
        typer.Argument(metavar="TARGET", help="Tenant, tenant/dataset or tenant/dataset/table, globs allowed."),
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Stop everything.")] = False,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Shown wherever the hold is listed.")
    ] = None,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """Emergency stop: end runs under way on all replicas.

    Each ends before its next request. Needs TARGET or --all. What is stopped stays paused until `lakesweep resume` is
    given the same target, '*' for all.

    Exit codes: 0 stopped, 2 bad usage or settings or no such target, 4 the state store cannot be used.
    """

    async def body(opened: Session) -> ExitCode:
        from lakesweep.daemon import holds  # noqa: PLC0415 - heavy
        from lakesweep.daemon.audit_factory import this_user  # noqa: PLC0415 - heavy
        from lakesweep.ports.state import Hold  # noqa: PLC0415 - heavy

        if everything == (scope is not None) or scope == "":
            raise SettingsError("give either a target or --all")
        app = opened.app
        wanted = scope or holds.EVERYTHING
        hold = Hold(scope=wanted, since=app.clock.now(), by=this_user().who, reason=reason)
        reached = await holds.stop(app, hold)
        under_way = f"; under way: {', '.join(reached)}" if reached else "; nothing is under way"
        screen.output().print(screen.text(f"{wanted}: stopped and held{under_way}"))
        await _check(opened, wanted, "the hold is still in place")  # after the stop, which must not wait for it
        return ExitCode.DONE

    raise typer.Exit(session.run(body, config=config, debug=debug))


def holds(as_json: options.Json = False, config: options.Config = None, debug: options.Debug = False) -> None:
    """List what is paused, until when, by whom and why.

    What has ended by itself in the last 7 days is listed as ended.

    Exit codes: 0 listed, 2 bad usage or settings, 4 the state store cannot be read.
    """

    async def body(opened: Session) -> ExitCode:
        found, ended = await opened.app.state.holds(), await opened.app.state.ended_holds()
        if as_json:
            document = {
                name: [reports.hold_document(hold) for hold in some]
                for name, some in (("holds", found), ("ended", ended))
            }
            print(documents.dumps(document), file=sys.stdout)
        else:
            lists.show_holds(screen.output(), found, ended)
        return ExitCode.DONE

    raise typer.Exit(session.run(body, config=config, debug=debug))


async def _check(opened: Session, scope: str, hint: str) -> None:
    from lakesweep.daemon import holds  # noqa: PLC0415 - heavy

    try:
        await holds.check_names_a_table(opened.app, scope)
    except UnknownTable as exc:
        raise UnknownTable(f"{exc}; {hint}") from exc


def resume(scope: Scope, *, config: options.Config = None, debug: options.Debug = False) -> None:
    """Resume paused tables.

    SCOPE is exactly what `lakesweep pause` was given, or what the refusal of a run names. `@clock` says that this
    machine's clock is right as it is, after a refusal with `clock_skew`.

    Exit codes: 0 lifted, 2 bad usage or settings or no such hold, 4 the state store cannot be used.
    """

    async def body(opened: Session) -> ExitCode:
        from lakesweep.daemon import clock, holds  # noqa: PLC0415 - heavy
        from lakesweep.daemon.audit_factory import this_user  # noqa: PLC0415 - heavy

        state = opened.app.state
        if scope == clock.CLOCK_SCOPE:
            await clock.believe(state)
            screen.output().print(screen.text("the current clock is accepted as correct"))
            return ExitCode.DONE
        lifted = await holds.resume(opened.app, scope, by=this_user().who, admin=True)
        if lifted is None:
            held = ", ".join(repr(hold.scope) for hold in await state.holds())
            raise SettingsError(f"there is no hold {scope!r}" + (f"; there is: {held}" if held else ", and no other"))
        why = f" ({lifted.reason})" if lifted.reason else ""
        screen.output().print(screen.text(f"{scope}: resumed; lifted the hold of {lifted.by}{why}"))
        return ExitCode.DONE

    raise typer.Exit(session.run(body, config=config, debug=debug))
