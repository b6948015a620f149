"""Query a catalog, through pyiceberg: which tables there are, and which metadata file of each is current. Only the
pointer is taken from it. We read the file ourselves, whole: a REST catalog may answer with ref heads only, and
pyiceberg knows neither version 4 nor inline manifests. All calls block and run in a few threads of their own, each with
a time limit. Secrets never get into messages, and only the operator decides which code runs, never a server or a
table."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import importlib
import importlib.util
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar, cast

from pyiceberg.catalog import Catalog, CatalogType, MetastoreCatalog, infer_catalog_type, load_catalog
from pyiceberg.exceptions import NoSuchIdentifierError, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.utils.config import Config, merge_config

from lakesweep.formats.iceberg import metastores
from lakesweep.formats.iceberg.catalog_errors import Describer
from lakesweep.formats.iceberg.commit_metadata import Stager
from lakesweep.formats.iceberg.fileio import BRIDGE_PROPERTY, IMPLEMENTATION, Bridge, BridgedFileIO, PointerFound
from lakesweep.model.errors import CatalogUnavailable, LakesweepError, SettingsError, UnknownTable
from lakesweep.model.location import Location
from lakesweep.ports.storage import Storage, Writer

if TYPE_CHECKING:
    from pyiceberg.catalog.rest import RestCatalog

Identifier = tuple[str, ...]
_Result = TypeVar("_Result")

_THREADS = 4
_TIMEOUT_SECONDS = 60.0
MOST_NAMESPACES = 100_000
"""A server that invents them without end must not keep us listing."""
_WITHOUT_NAME = frozenset({"rest", "hive", "glue", "dynamodb", "bigquery"})
"""Types of catalogs that ignore their own name; a SQL catalog looks its tables up by it."""
_ABSENT = (NoSuchTableError, NoSuchNamespaceError, NoSuchIdentifierError)


class CommitStyle(StrEnum):
    """Who writes the new metadata file of a commit."""

    SERVER = "server"
    """The catalog's server, from updates that we send: REST."""
    CLIENT = "client"
    """pyiceberg itself, which then swaps the pointer: SQL, Hive, Glue, DynamoDB, …"""
    UNKNOWN = "unknown"
    """A catalog class of the operator's own: we do not commit through it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """Where a table's current metadata is. `config` may hold a token and is never printed."""

    metadata_location: str
    properties: Mapping[str, str] = field(default_factory=dict)
    """Table properties as the catalog's answer has them: Nessie adds its own there and not in the file."""
    snapshots: frozenset[int] = frozenset()
    """Those that the catalog's answer shows: all, some or none."""
    refs: Mapping[str, int] = field(default_factory=dict)
    """Branches and tags of the catalog's answer, and where they point."""
    config: Mapping[str, str] = field(default_factory=dict, repr=False)


class IcebergCatalog:
    """One configured catalog. Connects at the first question."""

    def __init__(
        self,
        name: str,
        properties: Mapping[str, Any],
        storage: Storage,
        writer: Writer | None,
        *,
        timeout_seconds: float = _TIMEOUT_SECONDS,
    ) -> None:
        self._name = str(properties.get("name", name))
        self._properties = {key: value for key, value in properties.items() if key != "name"}
        whole = {**_looked_up(self._name), **self._properties}
        self._describer = Describer(self._name, whole)
        self.identity = (
            "" if whole.get("type") in _WITHOUT_NAME else self._name,
            json.dumps(whole, sort_keys=True, default=str),
        )
        """Equal only if two certainly use the same catalog. May contain secrets."""
        self._timeout_seconds = timeout_seconds
        self._threads = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix=f"catalog {self._name}")
        self._connecting = asyncio.Lock()
        self.can_write = writer is not None
        self._connected: Catalog | None = None
        self._bridge = Bridge(storage, writer, timeout_seconds)

    async def tables(self, namespace: Identifier | None) -> list[Identifier]:
        """Every table of a namespace and of those nested in it; of all namespaces when none is given."""
        catalog = await self._catalog()
        found: list[Identifier] = []
        waiting = [namespace] if namespace else await self._call("list namespaces", catalog.list_namespaces)
        seen: set[Identifier] = set()
        while waiting:
            current = tuple(waiting.pop())
            if current in seen:
                continue
            seen.add(current)
            if len(seen) > MOST_NAMESPACES:
                raise CatalogUnavailable(f"{self} has more than {MOST_NAMESPACES} namespaces: name one in the dataset")
            tables = await self._call(f"list tables of {'.'.join(current)}", catalog.list_tables, current)
            found += [tuple(table) for table in tables]
            waiting += [child for child in await self._children(catalog, current) if len(child) > len(current)]
        return sorted(set(found))

    async def other_places(self) -> list[Location]:
        """The locations of all entries of a metastore, Iceberg or not; none if it has Iceberg tables only."""
        catalog = await self._catalog()
        if not metastores.has_others(catalog):
            return []
        found: list[Location] = []
        for namespace in await self._call("list namespaces", catalog.list_namespaces):
            what = f"list all entries of {'.'.join(namespace)}"
            found += await self._call(what, metastores.places, catalog, tuple(namespace))
        return found

    async def pointer(self, identifier: Identifier) -> Pointer:
        """Which metadata file is current, without reading it."""
        catalog = await self._catalog()
        load: Callable[..., Pointer] = self._load_metastore
        if _is_rest(catalog):
            from lakesweep.formats.iceberg import rest  # noqa: PLC0415 - see _is_rest

            load = rest.load_pointer
        return await self._call(f"load {'.'.join(identifier)}", load, catalog, identifier)

    async def commit_style(self) -> CommitStyle:
        catalog = await self._catalog()
        if _is_rest(catalog):
            return CommitStyle.SERVER
        return CommitStyle.CLIENT if metastores.is_known(catalog) else CommitStyle.UNKNOWN

    async def no_swap(self) -> str | None:
        """Why this catalog's swap of the pointer cannot be relied on; asked only where the client commits."""
        return await self._call("find out how it commits", metastores.why_unconditional, await self._catalog())

    async def commit(
        self,
        identifier: Identifier,
        pointer: Pointer,
        requirements: Sequence[TableRequirement],
        updates: Sequence[TableUpdate],
        roots: Sequence[Location],
        *,
        known: tuple[str, bytes] = ("", b""),
    ) -> CommitTableResponse:
        """Send a commit, for which files may be written inside the table's roots. A client-side catalog reads the
        metadata file that it will swap out, unless that is the `known` one. Raises pyiceberg's own errors, or
        TimeoutError: only `expire` knows what they mean."""
        catalog = await self._catalog()
        table = Table(
            identifier=identifier,
            metadata=cast("Any", None),  # no catalog looks at it: each loads what it will swap against
            metadata_location=pointer.metadata_location,
            io=BridgedFileIO({BRIDGE_PROPERTY: self._bridge}),
            catalog=catalog,
            config=dict(pointer.config),
        )

        def send() -> CommitTableResponse:
            with self._bridge.writing_below(roots, known):
                return catalog.commit_table(table, tuple(requirements), tuple(updates))

        return await self._in_thread(send)

    def explain(self, exc: BaseException) -> str:
        """An error in one sentence without secrets."""
        return self._describer.sentence(exc)

    async def aclose(self) -> None:
        if self._connected is not None:
            await self._in_thread(self._connected.close)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def __str__(self) -> str:
        return str(self._describer)

    async def _catalog(self) -> Catalog:
        async with self._connecting:
            if self._connected is None:
                self._bridge.attach()
                self._connected = await self._call("connect", self._connect)
        return self._connected

    def _connect(self) -> Catalog:
        properties: dict[str, Any] = {
            # A cleaner must not create the tables of a catalog that is not there.
            "init_catalog_tables": "false",
            **self._properties,
            "py-io-impl": IMPLEMENTATION,
            BRIDGE_PROPERTY: self._bridge,
        }
        try:
            # Its warnings print addresses with whatever secrets are in them.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                catalog = self._load(properties)
        except (LakesweepError, TimeoutError):
            raise
        except Exception as exc:
            raise self._describer.connect_error(exc) from exc
        # Otherwise a table's own properties could name the class that opens its files.
        inside: Any = catalog
        inside._load_file_io = self._file_io  # noqa: SLF001 - pyiceberg asks it for every table
        if isinstance(catalog, MetastoreCatalog):
            inside._update_and_stage_table = Stager(catalog, self._file_io())  # noqa: SLF001 - and this for every commit
        if metastores.is_hive(catalog):
            inside._client = metastores.GuardedClients(catalog, self._timeout_seconds)  # noqa: SLF001 - as above
        return catalog

    def _load(self, properties: dict[str, Any]) -> Catalog:
        """Like `load_catalog`, except that a REST server must not influence what is loaded."""
        whole = merge_config(cast("Any", _looked_up(self._name)), properties)
        if not _is_rest_configured(self._name, whole):
            return load_catalog(self._name, **_with_driver(whole, properties))
        from lakesweep.formats.iceberg import rest  # noqa: PLC0415 - see _is_rest

        return rest.GuardedRestCatalog(self._name, self._timeout_seconds, **cast("dict[str, Any]", whole))

    def _file_io(self, properties: object = None, location: str | None = None) -> BridgedFileIO:  # noqa: ARG002
        return BridgedFileIO({BRIDGE_PROPERTY: self._bridge})

    async def _children(self, catalog: Catalog, namespace: Identifier) -> list[Identifier]:
        """Nested namespaces; catalogs without any say so in their own ways."""
        try:
            children = await self._in_thread(catalog.list_namespaces, namespace)
        except (*_ABSENT, NotImplementedError):
            return []
        except Exception as exc:
            raise self._describer.unavailable("list namespaces", exc) from exc
        return [tuple(child) for child in children]

    def _load_metastore(self, catalog: Catalog, identifier: Identifier) -> Pointer:
        with self._bridge.pointer_only():
            try:
                catalog.load_table(identifier)
            except PointerFound as found:
                return Pointer(metadata_location=found.location)
        raise CatalogUnavailable(f"{self} returned a table without naming its metadata file")

    async def _call(self, what: str, function: Callable[..., _Result], *arguments: Any) -> _Result:
        try:
            return await self._in_thread(function, *arguments)
        except LakesweepError:
            raise
        except TimeoutError as exc:
            raise CatalogUnavailable(f"{self} did not answer in {self._timeout_seconds:g} s ({what})") from exc
        except _ABSENT as exc:
            raise UnknownTable(f"{self} has no such table or namespace ({what})") from exc
        except Exception as exc:
            raise self._describer.unavailable(what, exc) from exc

    async def _in_thread(self, function: Callable[..., _Result], *arguments: Any) -> _Result:
        loop = asyncio.get_running_loop()
        # With the context copied: what the thread reads and writes counts for the run that called it.
        limited = functools.partial(contextvars.copy_context().run, self._limited, function, *arguments)
        call = loop.run_in_executor(self._threads, limited)
        # Not wait_for: before Python 3.12 it swallows a cancellation that comes together with the answer.
        async with asyncio.timeout(self._timeout_seconds):
            return await call

    def _limited(self, function: Callable[..., _Result], *arguments: Any) -> _Result:
        """A thread cannot be stopped from outside: the requests that it makes end with the call's time."""
        guard = getattr(self._connected, "guard", None)
        with guard.one_call() if guard is not None else nullcontext():
            return function(*arguments)


def _with_driver(whole: Mapping[str, Any], properties: dict[str, Any]) -> dict[str, Any]:
    """`postgresql://` with the driver that is installed with us; SQLAlchemy would look for another."""
    scheme, separator, rest = str(whole.get("uri", "")).partition("://")
    if not separator or scheme not in ("postgresql", "postgres") or importlib.util.find_spec("psycopg") is not None:
        return properties
    return {**properties, "uri": f"postgresql+psycopg2://{rest}"}


def _looked_up(name: str) -> Mapping[str, Any]:
    """What pyiceberg adds from its own variables and file, secrets too. It says itself if that is malformed."""
    try:
        return Config().get_catalog_config(name) or {}
    except ValueError:
        return {}


def _is_rest_configured(name: str, properties: Mapping[str, Any]) -> bool:
    """Without a `uri` pyiceberg has the better sentence."""
    if "uri" not in properties:
        return False
    if "py-catalog-impl" in properties:
        _refuse_rest_class(str(properties["py-catalog-impl"]))
        return False
    if kind := properties.get("type"):
        return str(kind).lower() == CatalogType.REST.value
    return infer_catalog_type(name, dict(properties)) is CatalogType.REST


def _refuse_rest_class(path: str) -> None:
    from pyiceberg.catalog.rest import RestCatalog  # noqa: PLC0415 - see _is_rest

    module, _, name = path.rpartition(".")
    try:
        named = getattr(importlib.import_module(module), name)
    except Exception:  # noqa: BLE001 - pyiceberg says it better, in a moment
        return
    if isinstance(named, type) and issubclass(named, RestCatalog):
        raise SettingsError(
            f"py-catalog-impl = {path}: a subclass of pyiceberg's REST catalog lets the server choose code that "
            'runs here. Use type = "rest" instead'
        )


def _is_rest(catalog: Catalog) -> TypeGuard[RestCatalog]:
    """Asked last of what it can be: its class brings an HTTP client, which is slow to import."""
    if isinstance(catalog, MetastoreCatalog):
        return False
    from pyiceberg.catalog.rest import RestCatalog  # noqa: PLC0415 - see above

    return isinstance(catalog, RestCatalog)
