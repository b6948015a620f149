"""pyiceberg's file access, through our own stores: one set of credentials, keys never parsed as URLs. pyiceberg calls
this from worker threads; the work is handed to the event loop that owns the stores. Nothing can be deleted through it,
and written only inside the roots of the table that is being committed to. While `pointer_only` is on, the first file
that a catalog wants to read is not read: its address is the answer."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from lakesweep.cleanup.write_gate import check_inside
from lakesweep.model.errors import AlreadyThere, NotFound
from lakesweep.model.location import Location
from lakesweep.ports.storage import Storage, Writer, stat_or_none

BRIDGE_PROPERTY = "lakesweep.bridge"
IMPLEMENTATION = f"{__name__}.BridgedFileIO"

_Result = TypeVar("_Result")


class PointerFound(Exception):
    """The metadata file that the catalog points at: an answer, not an error."""

    def __init__(self, location: str) -> None:
        self.location = location
        super().__init__(location)


class Bridge:
    """The stores of one dataset, callable from threads while the event loop runs."""

    def __init__(self, storage: Storage, writer: Writer | None, timeout_seconds: float) -> None:
        self._storage = storage
        self._writer = writer
        self._timeout_seconds = timeout_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.local()

    def attach(self) -> None:
        self._loop = asyncio.get_running_loop()

    @contextmanager
    def pointer_only(self) -> Iterator[None]:
        """In this thread, answer reads with PointerFound."""
        self._thread.pointer_only = True
        try:
            yield
        finally:
            self._thread.pointer_only = False

    @contextmanager
    def writing_below(self, roots: Sequence[Location], known: tuple[str, bytes] = ("", b"")) -> Iterator[None]:
        """In this thread, let files be written inside these places. Nowhere else and at no other time. `known` are the
        address and the contents of a file whose name is given only once: it is not read again."""
        self._thread.roots, self._thread.known = tuple(roots), known
        try:
            yield
        finally:
            self._thread.roots, self._thread.known = (), ("", b"")

    def announce(self, location: str) -> None:
        if getattr(self._thread, "pointer_only", False):
            raise PointerFound(location)

    def read(self, location: str) -> bytes:
        place = Location.parse(location)
        address, contents = getattr(self._thread, "known", ("", b""))
        if place.raw == address:
            known: bytes = contents
            return known
        try:
            return self._await(self._storage.read(place))
        except NotFound as exc:
            raise FileNotFoundError(location) from exc

    def exists(self, location: str) -> bool:
        return self._await(stat_or_none(self._storage, Location.parse(location))) is not None

    def write(self, location: str, data: bytes, *, overwrite: bool) -> None:
        if self._writer is None:
            raise PermissionError(f"{location}: this process only reads")
        place = Location.parse(location)
        check_inside(place, getattr(self._thread, "roots", ()))
        try:
            self._await(self._writer.put(place, data, create_only=not overwrite))
        except AlreadyThere as exc:
            raise FileExistsError(location) from exc

    def _await(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        if self._loop is None:
            work.close()
            raise RuntimeError("the bridge is not attached to an event loop")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(self._timeout_seconds)


class BridgedFileIO(FileIO):
    """What pyiceberg loads by name (`py-io-impl`); the bridge comes in the properties."""

    def __init__(self, properties: dict[str, Any]) -> None:
        super().__init__(properties)
        self._bridge: Bridge = properties[BRIDGE_PROPERTY]

    def new_input(self, location: str) -> InputFile:
        self._bridge.announce(location)
        return _File(location, self._bridge)

    def new_output(self, location: str) -> OutputFile:
        return _File(location, self._bridge)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Not through here, ever."""
        raise PermissionError(f"{location}: files are deleted by the sweep alone")


class _File(InputFile, OutputFile):
    def __init__(self, location: str, bridge: Bridge) -> None:
        super().__init__(location)
        self._bridge = bridge

    def __len__(self) -> int:
        return len(self._bridge.read(self.location))

    def exists(self) -> bool:
        return self._bridge.exists(self.location)

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002 - always seekable
        return io.BytesIO(self._bridge.read(self.location))

    def to_input_file(self) -> InputFile:
        return self

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Upload(self.location, self._bridge, overwrite=overwrite)


class _Upload(io.BytesIO):
    """Collects what is written and stores it when closed without an error."""

    def __init__(self, location: str, bridge: Bridge, *, overwrite: bool) -> None:
        super().__init__()
        self._location = location
        self._bridge = bridge
        self._overwrite = overwrite

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._bridge.write(self._location, self.getvalue(), overwrite=self._overwrite)
        self.close()
