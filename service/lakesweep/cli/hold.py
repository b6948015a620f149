"""`lakesweep stop`, `lakesweep pause` and `lakesweep resume`: hold tables back, and let them go again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lakesweep.cli import options, screen, session
from lakesweep.cli.exit_codes import ExitCode
from lakesweep.model.errors import SettingsError

if TYPE_CHECKING:
    from lakesweep.cli.session import Session

Scope = Annotated[
    str,
    typer.Argument(metavar="SCOPE", help="Tenant, tenant/dataset or tenant/dataset/table, globs allowed; all: '*'."),
]


def pause(
    scope: Scope,
    *,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Shown wherever the hold is listed.")
    ] = None,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """Pause tables until they are resumed.

    Holds for the service and for the command line, on all replicas. Plans still work; a run that deletes ends before
    its next request.

    Exit codes: 0 held, 2 bad usage or settings or no such scope, 4 the state store cannot be used.
    """

    async def body(opened: Session) -> ExitCode:
        from lakesweep.daemon import hold_commands  # noqa: PLC0415 - heavy
        from lakesweep.daemon.audit_factory import this_user  # noqa: PLC0415 - heavy
        from lakesweep.ports.state import Hold  # noqa: PLC0415 - heavy

        app = opened.app
        hold = Hold(scope=scope, since=app.clock.now(), by=this_user().who, reason=reason)
        await hold_commands.pause(app, hold)
        screen.output().print(screen.text(f"{scope}: held"))
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
        from lakesweep.daemon import hold_commands, holds  # noqa: PLC0415 - heavy
        from lakesweep.daemon.audit_factory import this_user  # noqa: PLC0415 - heavy
        from lakesweep.ports.state import Hold  # noqa: PLC0415 - heavy

        if everything == (scope is not None) or scope == "":
            raise SettingsError("give either a target or --all")
        app = opened.app
        wanted = scope or holds.EVERYTHING
        hold = Hold(scope=wanted, since=app.clock.now(), by=this_user().who, reason=reason)
        reached = await hold_commands.stop(app, hold)
        under_way = f"; under way: {', '.join(reached)}" if reached else "; nothing is under way"
        screen.output().print(screen.text(f"{wanted}: stopped and held{under_way}"))
        return ExitCode.DONE

    raise typer.Exit(session.run(body, config=config, debug=debug))


def resume(scope: Scope, *, config: options.Config = None, debug: options.Debug = False) -> None:
    """Resume paused tables.

    SCOPE is exactly what `lakesweep pause` was given, or what the refusal of a run names. `@clock` says that this
    machine's clock is right as it is, after a refusal with `clock_skew`.

    Exit codes: 0 lifted, 2 bad usage or settings or no such hold, 4 the state store cannot be used.
    """

    async def body(opened: Session) -> ExitCode:
        from lakesweep.daemon import clock, hold_commands  # noqa: PLC0415 - heavy
        from lakesweep.daemon.audit_factory import this_user  # noqa: PLC0415 - heavy

        state = opened.app.state
        if scope == clock.CLOCK_SCOPE:
            await clock.believe(state)
            screen.output().print(screen.text("the current clock is accepted as correct"))
            return ExitCode.DONE
        if not await hold_commands.resume(opened.app, scope, by=this_user().who, admin=True):
            held = ", ".join(repr(hold.scope) for hold in await state.holds())
            raise SettingsError(f"there is no hold {scope!r}" + (f"; there is: {held}" if held else ", and no other"))
        screen.output().print(screen.text(f"{scope}: resumed"))
        return ExitCode.DONE

    raise typer.Exit(session.run(body, config=config, debug=debug))
