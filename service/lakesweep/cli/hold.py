"""`lakesweep stop`, `pause`, `holds` and `resume`: hold tables back, show what is held, and let it go again."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

from typer import Argument, Option

from lakesweep.cleanup import report as reports
from lakesweep.cli import completion, documents, lists, options, screen, session
from lakesweep.model.errors import SettingsError, UnknownTable

Scope = Annotated[
    str,
    Argument(
        metavar="SCOPE",
        autocompletion=completion.targets,
        help="Tenant, tenant/dataset or tenant/dataset/table, globs allowed; all: '*'.",
    ),
]
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SPAN = re.compile(r"([1-9][0-9]{0,3})([mhdw])")


@session.command()
async def pause(
    opened: session.Session,
    scope: Scope,
    *,
    reason: options.Reason = None,
    until: Annotated[
        str | None,
        Option(
            "--until",
            metavar="TIME",
            help="When it ends by itself, such as 2026-12-24T18:00; UTC unless it has a zone.",
        ),
    ] = None,
    lasts: Annotated[str | None, Option("--for", metavar="SPAN", help="How long it lasts: 90m, 12h, 3d or 2w.")] = None,
    force: Annotated[
        bool, Option("--force", help="Also hold a table that does not exist (yet); contacts no catalog.")
    ] = False,
) -> None:
    """Hold tables until they are resumed, or until a time.

    Applies to the service and to the command line, on all replicas. Plans still work; a run that deletes ends before
    its next request. It never shortens an earlier hold: resume that first.

    Exit codes: 0 held, 2 bad usage or settings or no such scope, 4 the state store cannot be used.
    """
    from lakesweep.daemon import audit_factory, holds  # noqa: PLC0415 - heavy
    from lakesweep.ports.state import Hold  # noqa: PLC0415 - heavy

    app = opened.app
    if until is not None or lasts is not None:
        _end(app.clock.now(), until=until, lasts=lasts)  # before any catalog is queried
    if not force:
        await _check(opened, scope, "--force holds it anyway")
    now = app.clock.now()
    ends_at = _end(now, until=until, lasts=lasts)
    hold = Hold(scope=scope, since=now, by=audit_factory.this_user().who, reason=reason, ends_at=ends_at)
    stands = await holds.pause(app, hold)
    end = f" until {screen.moment(stands.ends_at)}" if stands.ends_at else ""
    screen.say(f"{scope}: held{end}")


@session.command()
async def stop(
    opened: session.Session,
    scope: Annotated[
        str | None, Argument(metavar="TARGET", help="Tenant, tenant/dataset or tenant/dataset/table, globs allowed.")
    ] = None,
    *,
    everything: Annotated[bool, Option("--all", help="Stop everything.")] = False,
    reason: options.Reason = None,
) -> None:
    """Emergency stop: end runs under way on all replicas.

    Each ends before its next request. Needs TARGET or --all. What is stopped stays held until `lakesweep resume` is
    given the same target, '*' for all.

    Exit codes: 0 stopped, 2 bad usage or settings or no such target, 4 the state store cannot be used.
    """
    from lakesweep.daemon import audit_factory, holds  # noqa: PLC0415 - heavy
    from lakesweep.ports.state import Hold  # noqa: PLC0415 - heavy

    if everything == (scope is not None) or scope == "":
        raise SettingsError("give either a target or --all")
    app = opened.app
    wanted = scope or holds.EVERYTHING
    hold = Hold(scope=wanted, since=app.clock.now(), by=audit_factory.this_user().who, reason=reason)
    reached = await holds.stop(app, hold)
    under_way = f"; under way: {', '.join(reached)}" if reached else "; nothing is under way"
    screen.say(f"{wanted}: stopped and held{under_way}")
    await _check(opened, wanted, "the hold is still in place")  # after the stop, which must not wait for it


@session.command()
async def holds(opened: session.Session, as_json: options.Json = False) -> None:
    """List what is held, until when, by whom and why.

    Holds that ended by themselves in the last 7 days are listed as ended.

    Exit codes: 0 listed, 2 bad usage or settings, 4 the state store cannot be read.
    """
    found, ended = await opened.app.state.holds(), await opened.app.state.ended_holds()
    if as_json:
        document = {
            name: [reports.hold_document(hold) for hold in some] for name, some in (("holds", found), ("ended", ended))
        }
        documents.write(document)
    else:
        lists.show_holds(screen.output(), found, ended)


async def _check(opened: session.Session, scope: str, hint: str) -> None:
    from lakesweep.daemon import holds  # noqa: PLC0415 - heavy

    try:
        await holds.check_names_a_table(opened.app, scope)
    except UnknownTable as exc:
        raise UnknownTable(f"{exc}; {hint}") from exc


@session.command()
async def resume(opened: session.Session, scope: Scope) -> None:
    """Resume tables that are held.

    SCOPE is exactly what `lakesweep pause` was given, or what the refusal of a run names. `@clock` confirms that
    this machine's clock is right, after a refusal with `clock_skew`.

    Exit codes: 0 lifted, 2 bad usage or settings or no such hold, 4 the state store cannot be used.
    """
    from lakesweep.daemon import audit_factory, clock, holds  # noqa: PLC0415 - heavy

    state = opened.app.state
    if scope == clock.CLOCK_SCOPE:
        await clock.trust_clocks(state)
        screen.say("the current clock is accepted as correct")
        return
    lifted = await holds.resume(opened.app, scope, by=audit_factory.this_user().who, admin=True)
    if lifted is None:
        held = ", ".join(repr(hold.scope) for hold in await state.holds())
        raise SettingsError(f"there is no hold {scope!r}" + (f"; held are: {held}" if held else "; nothing is held"))
    why = f" ({lifted.reason})" if lifted.reason else ""
    screen.say(f"{scope}: resumed; lifted the hold of {lifted.by}{why}")


def _end(now: datetime, *, until: str | None, lasts: str | None) -> datetime | None:
    """When something ends that was given `--until TIME` or `--for SPAN`; None for neither."""
    if until is not None and lasts is not None:
        raise SettingsError("give either --until or --for")
    ends_at = _moment(until) if until is not None else now + _span(lasts) if lasts is not None else None
    if ends_at is not None and ends_at <= now:
        raise SettingsError(f"--until {until}: that time has passed")
    return ends_at


def _span(text: str) -> timedelta:
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise SettingsError(f"--for {text!r}: expected a span like 90m, 12h, 3d or 2w")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def _moment(text: str) -> datetime:
    """As ISO 8601 has it; in UTC if it names no zone, as everywhere else here."""
    try:
        found = datetime.fromisoformat(text.strip())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):  # the last year's end has no time in UTC, nor has the first year's beginning
        raise SettingsError(f"--until {text!r}: expected a time like 2026-12-24T18:00") from None
