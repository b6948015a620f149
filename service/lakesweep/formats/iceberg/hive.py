"""A Hive metastore through pyiceberg's client, which may read, lock, and swap one pointer on one condition. pyiceberg
takes the table's lock and then alters the table whatever it has become: writers that do not lock
(`engine.hive.lock-enabled = false`) would lose an acknowledged commit to us. So every alter carries what the pointer
must still be, and the metastore compares (HIVE-26882). Nothing else of the table's entry is changed."""

from __future__ import annotations

import copy
import re
import threading
from types import TracebackType
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException

CHECKS_EXPECTED = "hive.checks-expected-parameter"
"""Our own catalog property: the operator asserts that the metastore has HIVE-26882. Versions before 4 do not report
it."""

_POINTER = "metadata_location"
_PREVIOUS = "previous_metadata_location"
_MODIFIED = "The table has been modified"
_LOCKING = frozenset({"lock", "check_lock", "unlock"})
_VERSION = re.compile(r"(\d+)\.\d+\.\d+(.*)")
_FIRST_CHECKING = 4
_LONGEST_TEXT = 64 << 20
_MOST_ENTRIES = 10_000_000


class GuardedClients:
    """Takes the place of a Hive catalog's one client: a connection of its own for each use, with limits."""

    def __init__(self, catalog: Any, timeout_seconds: float) -> None:
        self._catalog = catalog
        self._timeout_ms = int(timeout_seconds * 1000)
        self._thread = threading.local()

    def __enter__(self) -> _Metastore:
        client = self._catalog._create_hive_client(self._catalog.properties)  # noqa: SLF001 - the operator's own properties
        transport = client._transport  # noqa: SLF001 - there is no setting for its time limit
        socket = getattr(transport, "_TBufferedTransport__trans", None) or getattr(transport, "transport", None)
        if socket is not None:
            socket.setTimeout(self._timeout_ms)
        opened = client.__enter__()
        opened._iprot.string_length_limit = _LONGEST_TEXT  # noqa: SLF001 - nor for the size of what it reads
        opened._iprot.container_length_limit = _MOST_ENTRIES  # noqa: SLF001
        self._thread.client = client
        return _Metastore(opened)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.client.__exit__(kind, error, trace)


class _Metastore:
    """What of the metastore's protocol may be used."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._before: Any = None

    def __getattr__(self, name: str) -> Any:
        if name in _LOCKING or name.startswith("get"):
            return getattr(self._client, name)
        raise PermissionError(
            f"{name}: not allowed; only reads and the swap of the metadata pointer reach the metastore"
        )

    def get_table(self, dbname: str, tbl_name: str) -> Any:
        found = self._client.get_table(dbname=dbname, tbl_name=tbl_name)
        self._before = copy.deepcopy(found)
        return found

    def alter_table_with_environment_context(
        self, dbname: str, tbl_name: str, new_tbl: Any, environment_context: Any
    ) -> None:
        """Swap the pointer if it is still what it was when the entry was read."""
        after = copy.deepcopy(self._before)
        expected = after.parameters[_POINTER]
        after.parameters |= {_POINTER: new_tbl.parameters[_POINTER], _PREVIOUS: expected}
        environment_context.properties |= {"expected_parameter_key": _POINTER, "expected_parameter_value": expected}
        try:
            self._client.alter_table_with_environment_context(dbname, tbl_name, after, environment_context)
        except Exception as exc:
            if _MODIFIED in str(getattr(exc, "message", "")):
                raise CommitFailedException("the metastore's pointer has changed") from None
            raise


def why_unconditional(catalog: Catalog) -> str | None:
    """Why nothing proves that this metastore compares before it swaps; None when it does."""
    if str(catalog.properties.get(CHECKS_EXPECTED, "")).lower() == "true":
        return None
    with catalog._client as metastore:  # type: ignore[attr-defined]  # noqa: SLF001 - a Hive catalog has one
        version = str(metastore.getVersion())
    found = _VERSION.fullmatch(version)
    if found and int(found[1]) >= _FIRST_CHECKING and "alpha" not in found[2]:
        return None
    return (
        "nothing proves that this Hive metastore compares the pointer before it swaps it, so a commit of a writer that "
        f"does not lock could be lost. Hive 4 does; if yours has HIVE-26882 too (as 2.3.10 has), set {CHECKS_EXPECTED} "
        'to "true" in the catalog'
    )
