"""One log for the whole process, on standard error: JSON for machines, readable lines on a terminal.

Standard output belongs to what a command prints. Secrets are masked here, in every line of every library, so no caller
has to remember it."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from lakesweep.model.table import TableRef
from lakesweep.settings.observability import LoggingSettings
from lakesweep.settings.secrets import mask

RUN_RESULTS = "lakesweep.daemon.run_results"
"""The log of how each run ended."""


def configure(settings: LoggingSettings, *, at_least: int = logging.DEBUG, for_person: bool = False) -> None:
    """Send our log and that of every library to standard error. Calling it again replaces the configuration.

    `at_least` raises the level for a command whose own output already says what happens. `for_person` makes `auto`
    readable even without a terminal: a person ran the command and may read the log later."""
    level = max(logging.getLevelNamesMapping()[settings.level.upper()], at_least)
    readable = settings.format == "console" or (settings.format == "auto" and (for_person or sys.stderr.isatty()))
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _mask_secrets,
    ]
    _log_by(
        structlog.stdlib.filter_by_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        *shared,
        structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
    )
    handler = _StandardError()
    handler.addFilter(_is_news)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _renderer(readable=readable)],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(level, logging.WARNING))
    logging.getLogger("lakesweep").setLevel(level)
    # A command whose own output says what happens has said this too.
    logging.getLogger(RUN_RESULTS).setLevel(logging.ERROR if at_least > logging.DEBUG else logging.NOTSET)
    logging.captureWarnings(capture=True)


def _log_by(*processors: Processor) -> None:
    structlog.configure(
        processors=list(processors),
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


_libraries = threading.Lock()
_users = 0


@contextmanager
def as_library() -> Iterator[None]:
    """While the block runs inside another program, our log goes to the standard library's logger `lakesweep`, and
    nothing is printed. The caller's own structlog configuration is not changed."""
    global _users  # noqa: PLW0603 - one configuration for all threads that are inside
    logging.getLogger("lakesweep").addHandler(_SILENT)  # else the standard library prints warnings by itself
    with _libraries:
        ours = _users > 0 or not structlog.is_configured()
        if ours and _users == 0:
            _log_by(
                structlog.contextvars.merge_contextvars,
                structlog.stdlib.filter_by_level,
                structlog.processors.format_exc_info,
                _mask_secrets,
                structlog.processors.KeyValueRenderer(key_order=["event"]),
            )
        _users += ours
    try:
        yield
    finally:
        with _libraries:
            _users -= ours
            if ours and _users == 0:
                structlog.reset_defaults()


_SILENT = logging.NullHandler()


def about(ref: TableRef, run_id: str) -> AbstractContextManager[Any]:
    """Bind tenant, dataset, table and run to every line logged inside, in this task and those it starts."""
    return structlog.contextvars.bound_contextvars(
        tenant=str(ref.tenant), dataset=ref.dataset, table=ref.name, run=run_id
    )


def _is_news(record: logging.LogRecord) -> bool:
    """Drops py4j's traceback for every connection that ends with its JVM; py4j raises the error as well."""
    return not (record.name == "root" and record.msg == "Exception while sending command.")


class _StandardError(logging.StreamHandler[TextIO]):
    """Looks up `sys.stderr` for each line: a progress bar replaces it while it is shown."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, _: TextIO) -> None:
        """There is only one."""


def _renderer(*, readable: bool) -> Processor:
    if readable:
        return structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    return structlog.processors.JSONRenderer(serializer=json.dumps, default=str, ensure_ascii=False)


def _mask_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    return {key: value if key.startswith("_") else mask(value, key) for key, value in event.items()}
