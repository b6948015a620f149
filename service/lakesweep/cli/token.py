"""`lakesweep token`: make, list and revoke the tokens of the API. A token's text is shown once and stored nowhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated

import typer
from typer import Argument, Option

from lakesweep.cleanup.report import iso_utc
from lakesweep.cli import documents, options, screen, session
from lakesweep.model.access import EVERY_TENANT, ApiToken, Role
from lakesweep.model.errors import SettingsError

app = typer.Typer(name="token", help="Create, list and revoke API tokens.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
@session.command()
async def new(
    opened: session.Session,
    tenants: Annotated[
        list[str],
        Option("--tenant", metavar="ID", help="A tenant that the token covers; may be repeated. All of them: '*'."),
    ],
    *,
    role: Annotated[
        Role, Option("--role", help="read: look at tables, runs and plans. operate: also start and stop things.")
    ] = Role.READ,
    days: Annotated[
        float | None,
        Option("--days", min=0.001, max=36500, metavar="N", help="Expires after this many days.", show_default="never"),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Create a token and print it.

    It is shown only now: Lakesweep stores its SHA-256 alone. Send it as `Authorization: Bearer TOKEN`. Once a token
    exists, every request to the API needs one.

    Exit codes: 0 created, 2 bad usage or settings, 4 the state store cannot be used.
    """
    from lakesweep.admin.auth import mint  # noqa: PLC0415 - heavy
    from lakesweep.daemon.audit_factory import this_user  # noqa: PLC0415 - heavy

    known = {tenant.id for tenant in opened.settings.tenants}
    unknown = sorted(set(tenants) - known - {EVERY_TENANT})
    if unknown:
        raise SettingsError([_unknown(name, known) for name in unknown])
    now, lasts = opened.app.clock.now(), timedelta(days=days) if days else None
    token, text = mint(role=role, tenants=tenants, now=now, lasts=lasts)
    fields = {"token": token.id, "role": token.role.value, "tenants": list(token.tenants)}
    async with opened.app.events.loosening("token_made", this_user().who, **fields):
        await opened.app.state.add_token(token)
    print(documents.dumps({**_document(token), "token": text}) if as_json else text, file=sys.stdout)


@app.command("list")
@session.command()
async def list_(opened: session.Session, as_json: options.Json = False) -> None:
    """List all tokens, expired and revoked ones included.

    Exit codes: 0 listed, 2 bad usage or settings, 4 the state store cannot be used.
    """
    found = await opened.app.state.list_tokens()
    if as_json:
        documents.write_array("tokens", (_document(token) for token in found))
        return
    console, now = screen.output(), opened.app.clock.now()
    shown = screen.table(console, "token", "role", "tenants", "made", "ends", "state", paths=("token", "tenants"))
    for token in found:
        state = "valid" if token.valid_at(now) else "revoked" if token.revoked_at else "expired"
        shown.add_row(
            token.id,
            token.role.value,
            screen.text(" ".join(token.tenants)),
            screen.moment(token.created_at),
            screen.moment(token.expires_at) if token.expires_at else "never",
            screen.text(state, "green" if state == "valid" else "red"),
        )
    console.print(shown if shown.row_count else screen.text("no tokens"))


@app.command()
@session.command()
async def revoke(
    opened: session.Session,
    token_id: Annotated[str, Argument(metavar="TOKEN", help="Its id, as `lakesweep token list` shows it.")],
) -> None:
    """Revoke a token.

    Exit codes: 0 revoked, 2 no such token, 4 the state store cannot be used.
    """
    from lakesweep.daemon.audit_factory import this_user  # noqa: PLC0415 - heavy

    async with opened.app.events.tightening("token_revoked", this_user().who, token=token_id):
        if not await opened.app.state.revoke_token(token_id, opened.app.clock.now()):
            raise SettingsError(f"there is no token {token_id!r}: `lakesweep token list` shows them")
    screen.say(f"{token_id}: revoked")


def _unknown(name: str, known: Iterable[str]) -> str:
    from lakesweep.daemon import targets  # noqa: PLC0415 - heavy

    meant = targets.suggestion(name, known)
    return f"--tenant {name}: no such tenant is configured{meant and ': ' + meant}"


def _document(token: ApiToken) -> dict[str, object]:
    times = {name: iso_utc(getattr(token, name)) for name in ("created_at", "expires_at", "revoked_at")}
    return {"id": token.id, "role": token.role.value, "tenants": list(token.tenants), **times}
