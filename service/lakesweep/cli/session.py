"""Open what a command needs, run it, and turn whatever happens into one sentence and an exit code.

Everything heavy is imported here and only when a command really runs, so that `--help` answers at once.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import typer

from lakesweep import aio
from lakesweep.cli import exit_codes, interrupts, options, screen, startup
from lakesweep.cli.exit_codes import ExitCode
from lakesweep.model.errors import LakesweepError, SettingsError, StorageError
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName

if TYPE_CHECKING:
    from lakesweep.daemon.app import App
    from lakesweep.settings.cleanup import CleanupOverride
    from lakesweep.settings.schema import Settings

Work: TypeAlias = Callable[..., Awaitable[ExitCode | None]]
"""Called with a Session first."""
_LARGEST = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What a command works with."""

    settings: Settings
    app: App
    config: Path | None
    format: FormatName | None
    """Of tables that are given by their location (`--format`), like the root."""
    root: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """The options that a command shares with others; see `options.SHARED`."""

    config: Path | None
    debug: bool
    older_than: str | None = None
    retain_last: int | None = None
    grace: str | None = None
    table_format: FormatName | None = None
    root: str | None = None

    def override(self) -> CleanupOverride:
        """The rules of this one call, as the narrowest level of the settings. Raises SettingsError."""
        from lakesweep.settings import cascade  # noqa: PLC0415 - heavy

        return cascade.override_for_call(
            older_than=cascade.span_of("--older-than", self.older_than),
            retain_last=self.retain_last,
            grace=cascade.span_of("--grace", self.grace),
            spelled=lambda name: f"--{name.replace('_', '-')}",
        )


def command(
    *shared: str, is_service: bool = False, check: Callable[..., None] = lambda **_: None
) -> Callable[[Work], Callable[..., None]]:
    """Make a command of a coroutine: a session is opened for it, and the process ends with its exit code, 0 for None.

    Behind the coroutine's own options the command has those `shared` ones that are named, then --config and --debug.
    `check` may raise for the command's own options before anything is opened.
    """
    names = (*shared, "config", "debug")

    def decorate(work: Work) -> Callable[..., None]:
        def process(**given: Any) -> None:
            about = _Shared(**{name: given.pop(name) for name in names})
            check(**given)
            body = partial(work, **given)
            raise typer.Exit(guarded(lambda: _run(body, about, is_service=is_service), debug=about.debug))

        _, *own = inspect.signature(work, eval_str=True).parameters.values()
        parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
        for name in names:
            annotation, default = options.SHARED[name]
            parameters.append(
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
            )
        process.__name__, process.__doc__ = work.__name__, work.__doc__
        process.__annotations__ = {one.name: one.annotation for one in parameters}
        process.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return process

    return decorate


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


def _run(body: Work, given: _Shared, *, is_service: bool) -> ExitCode:
    # pydantic, pyarrow, botocore and their like take longer to import than `--help` takes to print.
    from lakesweep.settings.load import load, read_objects_by  # noqa: PLC0415 - heavy
    from lakesweep.telemetry import logs  # noqa: PLC0415 - heavy

    read_objects_by(read_settings_object)
    settings = load(given.config)
    log_settings = settings.logging.model_copy(update={"level": "debug"}) if given.debug else settings.logging
    # On a terminal most commands show by themselves what happens.
    quiet = sys.stderr.isatty() and not (given.debug or is_service)
    logs.configure(log_settings, at_least=logging.WARNING if quiet else logging.DEBUG, for_person=not is_service)

    override = given.override()
    startup.import_arrow()
    from lakesweep.daemon.app import App  # noqa: PLC0415 - heavy

    async def opened() -> ExitCode:
        # The service has its own way to end.
        ended_by_sigterm = startup.is_ours() and not is_service
        with interrupts.stop_on_sigterm() if ended_by_sigterm else nullcontext():
            return await in_session()

    async def in_session() -> ExitCode:
        async with App.open(settings, override=override) as app:
            startup.finish()
            session = Session(
                settings=settings, app=app, config=given.config, format=given.table_format, root=given.root
            )
            code = await body(session) or ExitCode.DONE
            if not is_service:  # the service delivers by itself, and retries
                await app.notifier.deliver()
            return code

    try:
        return asyncio.run(opened())
    except asyncio.CancelledError:  # by SIGTERM
        raise KeyboardInterrupt from None


def _first(error: BaseException) -> BaseException:
    """Tasks fail in groups; one of our own errors says it best."""
    found = list(aio.leaves(error))
    return next((leaf for leaf in found if isinstance(leaf, LakesweepError)), found[0])


def read_settings_object(address: str) -> bytes:
    """The file, or SettingsError. In a thread of its own: a loop may be running in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(_read_object(address))).result()


async def _read_object(address: str) -> bytes:
    """Credentials are those of the AWS chain; endpoint and region are AWS_ENDPOINT_URL and AWS_REGION."""
    from lakesweep.storage.registry import open_storage  # noqa: PLC0415 - heavy, and few settings are there
    from lakesweep.storage.s3.settings import S3Options  # noqa: PLC0415 - likewise
    from lakesweep.storage.spec import StorageSpec  # noqa: PLC0415 - likewise

    variables = os.environ.get
    endpoint = variables("AWS_ENDPOINT_URL_S3") or variables("AWS_ENDPOINT_URL")
    region = variables("AWS_REGION") or variables("AWS_DEFAULT_REGION")
    reached = S3Options(endpoint_url=endpoint, region=region, path_style=endpoint is not None)
    storage = open_storage(StorageSpec(stores=(reached,)))
    try:
        return await storage.read(Location.parse(address), _LARGEST)
    except (StorageError, ValueError) as exc:
        raise SettingsError(f"cannot read the settings {address}: {exc}") from exc
    finally:
        await storage.aclose()
