"""A place for one plan's relations, removed when the plan is done: a directory, a store that Lakesweep supports, or any
place that Spark can write to.

A killed process leaves its relations behind. In directories a lock shows that, see `engines.scratch`. Elsewhere
relations count as abandoned when nothing was written for a day; if that is wrong, the run fails with an error.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from lakesweep.engines import scratch as local_scratch
from lakesweep.engines.spark import file_system
from lakesweep.engines.spark.config import SparkConfig
from lakesweep.engines.spark.errors import NOT_FINISHED
from lakesweep.engines.spark.relations import LocalFiles, Relations, SparkFiles, StoredObjects
from lakesweep.engines.spark.scratch_objects import OpenScratch, open_scratch
from lakesweep.engines.spark.session import SessionLost
from lakesweep.model.errors import EngineFailed, LakesweepError
from lakesweep.model.location import Location
from lakesweep.storage.kinds import has_store
from lakesweep.storage.spec import Confine, StorageSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
OnSpark = Callable[[Callable[["SparkSession"], T]], Awaitable[T]]
"""Runs a function with the session, in its own thread."""
Discard = Callable[[Sequence[str]], Awaitable[None]]
"""Removes objects in the scratch location and no others. Never raises."""

ABANDONED = timedelta(days=1)
"""No cycle takes this long."""
_PLAN = re.compile(r"plan-[0-9a-f]{32}")
_STARTED = "started"


class Scratch(Protocol):
    """Creates places for plans."""

    @property
    def where(self) -> str:
        """For messages."""
        ...

    @property
    def shared(self) -> bool:
        """Must it still be checked that the executors reach it?"""
        ...

    def opened(self, on_spark: OnSpark[Any]) -> AbstractAsyncContextManager[Relations]:
        """A new place for the duration of the block."""
        ...

    async def remove_abandoned(self) -> None:
        """Remove what killed processes left. Does nothing where only Spark can."""
        ...


@dataclass(frozen=True, kw_only=True)
class DirectoryScratch:
    """A local directory, or one that all machines mount at the same path."""

    parent: Path
    shared: bool = False
    """Several machines mount it."""
    configured: bool = True
    """False: it is this service's own, because none is configured."""

    @property
    def where(self) -> str:
        """The directory."""
        return str(self.parent)

    @asynccontextmanager
    async def opened(self, on_spark: OnSpark[Any]) -> AsyncIterator[Relations]:  # noqa: ARG002  # needs none
        """A directory below it."""
        async with AsyncExitStack() as stack:
            try:
                place = local_scratch.scratch(self.parent, self._abandoned_after)
                directory = await stack.enter_async_context(place)
            except OSError as exc:
                name = f"engine.spark.scratch = {self.where}"
                own = f"{self.where}, scratch below service.data_dir,"
                why = exc.strerror or exc
                raise EngineFailed(f"{name if self.configured else own} cannot be used: {why}") from exc
            yield LocalFiles(directory)

    async def remove_abandoned(self) -> None:
        """By their locks, and in a shared directory by their age too."""
        await local_scratch.remove_abandoned(self.parent, self._abandoned_after)

    @property
    def _abandoned_after(self) -> timedelta:
        return ABANDONED if self.shared else local_scratch.AT_ONCE


@dataclass(frozen=True, kw_only=True)
class StoreScratch:
    """A location in a store that Lakesweep supports itself."""

    place: Location
    open_store: OpenScratch
    """Sent to the executors."""
    discard: Discard
    shared: bool = True

    @property
    def where(self) -> str:
        """The location."""
        return self.place.raw

    @asynccontextmanager
    async def opened(self, on_spark: OnSpark[Any]) -> AsyncIterator[Relations]:  # noqa: ARG002  # needs none
        """A new prefix below the location."""
        name = _new_name()
        await self._begin(name)
        try:
            yield StoredObjects(self.place.join(name), self.open_store, name.replace("-", "_"))
        finally:
            with suppress(LakesweepError):  # what is left is abandoned; a later plan removes it
                await self.discard([path for path, _ in await self._objects(name)])

    async def remove_abandoned(self) -> None:
        """What nothing was written to for a day, by the store's own time, which a new object tells."""
        name = _new_name()
        try:
            await self._begin(name)
        finally:
            await self.discard([self.place.join(name, _STARTED).raw])

    async def _begin(self, name: str) -> None:
        """Write a first object, from which the store's own time is known, and remove abandoned relations."""
        store = self.open_store()
        try:
            mark = self.place.join(name, _STARTED)
            await store.writer.put(mark, b"", create_only=False)
            now = (await store.storage.stat(mark)).modified_at
            plans = [one for one in await store.storage.directories(self.place) if _PLAN.fullmatch(one) and one != name]
        except LakesweepError as exc:
            raise EngineFailed(f"engine.spark.scratch = {self.where} cannot be used: {exc}") from exc
        finally:
            await store.aclose()
        for plan in plans:
            with suppress(LakesweepError):
                found = await self._objects(plan)
                if _abandoned([at for _, at in found], now):
                    await self.discard([path for path, _ in found])

    async def _objects(self, name: str) -> list[tuple[str, datetime | None]]:
        store = self.open_store()
        found: list[tuple[str, datetime | None]] = []
        try:
            async for page in store.storage.list(self.place.join(name)):
                found += zip(page.column("path").to_pylist(), page.column("modified_at").to_pylist(), strict=True)
        finally:
            await store.aclose()
        return found


@dataclass(frozen=True, kw_only=True)
class SparkScratch:
    """Any file system that Spark has a connector for: hdfs://, s3a://, abfss://, gs://, dbfs:/."""

    address: str
    shared: bool = True

    @property
    def where(self) -> str:
        """The address."""
        return self.address

    @asynccontextmanager
    async def opened(self, on_spark: OnSpark[Any]) -> AsyncIterator[Relations]:
        """A directory below it, made and removed by Spark's own connector."""
        name = _new_name()
        place = f"{self.address.rstrip('/')}/{name}"
        try:
            await on_spark(lambda spark: self._begin(spark, place))
        except SessionLost:
            raise
        except EngineFailed as exc:
            why = str(exc).removeprefix(NOT_FINISHED)
            raise EngineFailed(f"engine.spark.scratch = {self.where} cannot be used: {why}") from exc
        try:
            yield SparkFiles(place, name.replace("-", "_"))
        finally:
            with suppress(EngineFailed):
                await on_spark(lambda spark: file_system.remove_directory(spark, place))

    async def remove_abandoned(self) -> None:
        """Needs a session, so it is left to the next plan."""

    def _begin(self, spark: SparkSession, place: str) -> None:
        now = file_system.make_directory(spark, place)
        for name, changed_at in file_system.directories(spark, self.address):
            if _PLAN.fullmatch(name) and now - changed_at > ABANDONED.total_seconds():
                file_system.remove_directory(spark, f"{self.address.rstrip('/')}/{name}")


def _abandoned(times: Sequence[datetime | None], now: datetime | None) -> bool:
    """Was the last object written long ago? An object without a time counts as new."""
    return now is not None and all(at is not None and now - at > ABANDONED for at in times)


def _new_name() -> str:
    return f"plan-{uuid.uuid4().hex}"


def choose(config: SparkConfig, default: Path, spec: StorageSpec | None, discard: Discard | None) -> Scratch:
    """Choose by the address alone: a directory, a store that Lakesweep supports, or any other place that Spark can
    write to."""
    address = config.scratch
    if address is None:
        return DirectoryScratch(parent=default, shared=not config.local, configured=False)
    if not has_store(address):
        return SparkScratch(address=address)
    place = Location.parse(address)
    if place.is_local:
        return DirectoryScratch(parent=Path(place.path), shared=not config.local)
    if spec is not None and discard is not None:
        confined = replace(spec, confine=Confine(places=(place,)))
        return StoreScratch(place=place, open_store=partial(open_scratch, confined), discard=discard)
    return SparkScratch(address=address)
