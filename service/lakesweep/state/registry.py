"""Which state store a URL names."""

from __future__ import annotations

from lakesweep.cleanup.ports import Clock
from lakesweep.cleanup.records import StateStore
from lakesweep.model.errors import SettingsError
from lakesweep.state.database import Database
from lakesweep.state.memory import MemoryStateStore
from lakesweep.state.store import SqlStateStore


async def open_state(url: str, clock: Clock) -> StateStore:
    """Open, create if need be, and migrate the store. Raises SettingsError on a URL that names none."""
    scheme, _, rest = url.partition("://")
    match scheme:
        case "memory":
            return MemoryStateStore(clock)
        case "sqlite" if rest.startswith("/") and len(rest) > 1:
            return SqlStateStore(await Database.open_sqlite(rest[1:], clock))
        case "postgresql" | "postgres":
            return SqlStateStore(await Database.open_postgres(url))
        case _:
            # The rest of the URL may hold a password and is not repeated.
            raise SettingsError(
                f"state.url: no state store for {scheme + '://' if '://' in url else 'this text'}: expected "
                "sqlite:///path/to/file (four slashes for an absolute path), "
                "postgresql://user:password@host/database or memory://"
            )
