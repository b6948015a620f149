"""Open what a command needs, run it, and turn whatever happens into one sentence and an exit code.

Everything heavy is imported here and only when a command really runs, so that `--help` answers at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakesweep import aio
from lakesweep.cli import exit_codes, screen, settings_object, startup
from lakesweep.cli.exit_codes import ExitCode
from lakesweep.model.errors import LakesweepError

if TYPE_CHECKING:
    from lakesweep.daemon.app import App
    from lakesweep.settings.cleanup import CleanupOverride
    from lakesweep.settings.schema import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What a command works with."""

    settings: Settings
    app: App


@dataclass(frozen=True, slots=True)
class Rules:
    """What a person said for this one call."""

    older_than: str | None = None
    retain_last: int | None = None
    grace: str | None = None

    def override(self) -> CleanupOverride:
        """As the narrowest level of the settings. Raises SettingsError."""
        from lakesweep.settings import one_call  # noqa: PLC0415 - heavy

        return one_call.override(
            older_than=one_call.span("--older-than", self.older_than),
            retain_last=self.retain_last,
            grace=one_call.span("--grace", self.grace),
        )


def run(
    body: Callable[[Session], Awaitable[ExitCode]],
    *,
    config: Path | None,
    debug: bool,
    is_service: bool = False,
    rules: Rules | None = None,
) -> ExitCode:
    """Run one command. Never raises: the answer is the process's exit code."""
    return guarded(lambda: _run(body, config, rules or Rules(), debug=debug, is_service=is_service), debug=debug)


async def each_tenant(opened: Session, tenant: str | None, look: Callable[[str], Awaitable[None]]) -> list[ExitCode]:
    """Look at this tenant, or at all. One that cannot be read is reported, and does not stop the others."""
    from lakesweep.daemon.targets import unknown_tenant  # noqa: PLC0415 - heavy

    known = [one.id for one in opened.settings.tenants]
    wanted = [name for name in known if tenant in (None, name)]
    if not wanted:
        raise unknown_tenant(tenant, known)
    codes: list[ExitCode] = []
    for name in wanted:
        try:
            await look(name)
        except LakesweepError as exc:
            screen.complain(f"{name}: {exit_codes.sentence(exc)}")
            codes.append(exit_codes.of_error(exc))
    return codes


def guarded(work: Callable[[], ExitCode], *, debug: bool) -> ExitCode:
    try:
        code = work()
        sys.stdout.flush()  # a reader that went away is noticed here, and not at the very end
    except KeyboardInterrupt:
        screen.complain("interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # Python flushes standard output once more at its end, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.CLOSED_PIPE
    except Exception as exc:  # noqa: BLE001 - the outermost boundary: nothing may reach a user as a traceback
        error = _first(exc)
        if debug:
            traceback.print_exception(error)
        screen.complain(exit_codes.sentence(error))
        return exit_codes.of_error(error)
    return code


def _run(
    body: Callable[[Session], Awaitable[ExitCode]],
    config: Path | None,
    rules: Rules,
    *,
    debug: bool,
    is_service: bool,
) -> ExitCode:
    # pydantic, pyarrow, botocore and their like take longer to import than `--help` takes to print.
    from lakesweep.settings.load import load, read_objects_by  # noqa: PLC0415 - heavy
    from lakesweep.telemetry import logs  # noqa: PLC0415 - heavy

    read_objects_by(settings_object.read)
    settings = load(config)
    log_settings = settings.logging.model_copy(update={"level": "debug"}) if debug else settings.logging
    # On a terminal most commands show by themselves what happens.
    quiet = sys.stderr.isatty() and not (debug or is_service)
    logs.configure(log_settings, at_least=logging.WARNING if quiet else logging.DEBUG, for_person=not is_service)

    override = rules.override()
    startup.import_arrow()
    from lakesweep.daemon.app import App  # noqa: PLC0415 - heavy

    async def opened() -> ExitCode:
        async with App.open(settings, override=override) as app:
            startup.finish()
            code = await body(Session(settings=settings, app=app))
            if not is_service:  # the service delivers by itself, and retries
                await app.notifier.deliver()
            return code

    return asyncio.run(opened())


def _first(error: BaseException) -> BaseException:
    """Tasks fail in groups; one of our own errors says it best."""
    found = list(aio.leaves(error))
    return next((leaf for leaf in found if isinstance(leaf, LakesweepError)), found[0])
