"""Open the state store that a URL names. Its modules are imported on use: drivers are slow to import."""

from __future__ import annotations

from lakesweep.model.errors import SettingsError
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
            # The rest of the URL may contain a password and is not repeated.
            raise SettingsError(
                f"state.url: no state store for {scheme + '://' if '://' in url else 'this text'}: expected "
                "sqlite:///path/to/file (four slashes for an absolute path), "
                "postgresql://user:password@host/database or memory://"
            )
