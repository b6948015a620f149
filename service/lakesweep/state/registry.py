"""Which state store a URL names. What a store needs is imported when one is opened: drivers are slow to import."""

from __future__ import annotations

from lakesweep.model.errors import SettingsError
from lakesweep.ports.clock import Clock
from lakesweep.ports.state import StateStore


async def open_state(url: str, clock: Clock) -> StateStore:
    """Open, create if need be, and migrate the store. Raises SettingsError on a URL that names none."""
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

            return SqlStateStore(await open_postgres(url))
        case _:
            # The rest of the URL may hold a password and is not repeated.
            raise SettingsError(
                f"state.url: no state store for {scheme + '://' if '://' in url else 'this text'}: expected "
                "sqlite:///path/to/file (four slashes for an absolute path), "
                "postgresql://user:password@host/database or memory://"
            )
