"""The engines there are, and which one plans a table: by setting, or by the table's size."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from pathlib import Path

from lakesweep.cleanup.ports import Decode, Storage
from lakesweep.engines.cache import DigestCache
from lakesweep.engines.inprocess import InProcessEngine
from lakesweep.model.errors import SettingsError
from lakesweep.model.run import EngineChoice
from lakesweep.model.table import FormatName

INPROCESS = "inprocess"
SPARK = "spark"

CACHE_BYTES = 2 * 1024**3
"""Enough for the references of about fifty million files."""


def open_inprocess(
    *,
    storage: Storage,
    decoder: Callable[[FormatName], Decode],
    data_dir: Path,
    memory_limit: str,
    cache_scope: str = "",
) -> InProcessEngine:
    """The engine inside this process. Stores that may give one address to different objects (two endpoints, two
    tenants) need different cache scopes."""
    scope = hashlib.sha256(cache_scope.encode()).hexdigest()[:16]
    return InProcessEngine(
        storage=storage,
        decoder=decoder,
        cache=DigestCache(data_dir / "cache" / scope, limit_bytes=CACHE_BYTES),
        scratch_dir=data_dir / "scratch",
        memory_limit=memory_limit,
    )


def choose(
    kind: str, *, spark_above_files: int, estimate: int | None, available: Collection[str] = (INPROCESS,)
) -> EngineChoice:
    """The engine for a table of about `estimate` files, and the reason as a sentence."""
    if kind == "auto":
        return _by_size(spark_above_files, estimate, available)
    if kind not in available:
        raise SettingsError(f'engine.kind = "{kind}": not available in this build (have: {", ".join(available)})')
    return EngineChoice(kind=kind, why=f'engine.kind = "{kind}"')


def _by_size(spark_above_files: int, estimate: int | None, available: Collection[str]) -> EngineChoice:
    if estimate is None:
        return EngineChoice(kind=INPROCESS, why="the table does not say how many files it has")
    if estimate < spark_above_files:
        return EngineChoice(
            kind=INPROCESS, why=f"about {estimate} files, below spark_above_files = {spark_above_files}"
        )
    size = f"about {estimate} files, spark_above_files = {spark_above_files}"
    if SPARK not in available:
        return EngineChoice(kind=INPROCESS, why=f"{size}, but Spark is not available in this build")
    return EngineChoice(kind=SPARK, why=size)
