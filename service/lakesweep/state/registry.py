"""Open the state store that a URL names, or say what is there. Modules are imported on use: drivers take long."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from lakesweep.model.errors import SettingsError, StateError
from lakesweep.ports.clock import Clock
from lakesweep.ports.state import StateStore


async def open_state(url: str, clock: Clock) -> StateStore:
    """Open the store, create it if necessary, and migrate it. Raises SettingsError for a URL that names none."""
    scheme, _, rest = url.partition("://")
    match scheme:
        case "memory":
            from lakesweep.state.memory import MemoryStateStore  # noqa: PLC0415 - see above

            return MemoryStateStore(clock)
        case "sqlite" if rest.startswith("/") and len(rest) > 1:
            from lakesweep.state.sqlite import open_sqlite  # noqa: PLC0415 - see above
            from lakesweep.state.store import SqlStateStore  # noqa: PLC0415 - see above

            return SqlStateStore(await open_sqlite(rest[1:], clock))
        case "postgresql" | "postgres":
            from lakesweep.state.postgres import open_postgres  # noqa: PLC0415 - see above
            from lakesweep.state.store import SqlStateStore  # noqa: PLC0415 - see above

            return SqlStateStore(await open_postgres(url, clock))
        case _:
            raise _unknown(url)


async def describe(url: str) -> str:
    """What is there, as text, for `lakesweep doctor`. Only reads: creates, migrates and locks nothing. Raises
    StateError for a store that cannot be used, SettingsError for a URL that names none."""
    scheme, _, rest = url.partition("://")
    match scheme:
        case "memory":
            return "in memory: forgotten when the process ends"
        case "sqlite" if rest.startswith("/") and len(rest) > 1:
            path = rest[1:]
            if not await asyncio.to_thread(_exists, path):
                return f"{path} is created by the first run"
            from lakesweep.state import sqlite  # noqa: PLC0415 - see above

            return _with_version(path, await asyncio.to_thread(sqlite.read_version, path))
        case "postgresql" | "postgres":
            from lakesweep.state import postgres  # noqa: PLC0415 - see above

            return _with_version(postgres.public_name(url), await postgres.read_version(url))
        case _:
            raise _unknown(url)


def _with_version(name: str, found: str | None) -> str:
    from lakesweep.state.schema import NEWEST  # noqa: PLC0415 - see above

    if found is None:
        return f"{name} has no tables yet: the first run creates them"
    if found < NEWEST:
        return f"{name} can be read; the next run migrates its schema from {found} to {NEWEST}"
    return f"{name} can be read, schema {found}"


def _exists(path: str) -> bool:
    """Does the file exist? Raises StateError if it does not and cannot be created."""
    try:
        os.stat(path)  # noqa: PTH116 - says why it cannot look
    except FileNotFoundError:
        parent = next(one for one in Path(path).absolute().parents if one.exists())
        if not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
            raise StateError(f"the state store sqlite:///{path} cannot be created: {parent} is not writable") from None
        return False
    except OSError as exc:
        raise StateError(f"the state store sqlite:///{path} cannot be used: {exc.strerror}") from exc
    return True


def _unknown(url: str) -> SettingsError:
    # The rest of the URL may contain a password and is not repeated.
    scheme = url.partition("://")[0]
    return SettingsError(
        f"state.url: no state store for {scheme + '://' if '://' in url else 'this text'}: expected "
        "sqlite:///path/to/file (four slashes for an absolute path), "
        "postgresql://user:password@host/database or memory://"
    )
