"""`lakesweep doctor`: what is installed here and what answers. Reads only."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from lakesweep.cli import documents, options, screen, session
from lakesweep.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from lakesweep.daemon.doctor import Finding

_STYLES = {"ok": "green", "absent": "yellow", "failed": "red"}


def doctor(as_json: options.Json = False, config: options.Config = None, debug: options.Debug = False) -> None:
    """Check what is installed and how each store answers.

    Looks at Python, the compiled parts, Spark and Java, the clients of catalogs, and connects to every configured
    store and catalog with the credentials of this process. Changes nothing.

    Exit codes: 0 all is well, 2 bad usage or settings, 4 something is broken or does not answer.
    """
    raise typer.Exit(session.guarded(lambda: _look(config, as_json=as_json), debug=debug))


def _look(config: Path | None, *, as_json: bool) -> ExitCode:
    from lakesweep.daemon import doctor as looking  # noqa: PLC0415 - heavy
    from lakesweep.settings import load  # noqa: PLC0415 - heavy

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
