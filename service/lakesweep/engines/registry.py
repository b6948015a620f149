"""The list of engines, and which one plans a table: by setting, or by the table's size."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lakesweep.engines.inprocess import InProcessEngine
from lakesweep.engines.manifest_cache import DigestCache
from lakesweep.engines.spark import startup
from lakesweep.engines.spark.backends import SCRATCH, SparkConfig
from lakesweep.engines.table_size import Estimate
from lakesweep.model.errors import EngineFailed, SettingsError
from lakesweep.model.run import EngineChoice
from lakesweep.model.table import FormatName
from lakesweep.ports.references import Decode
from lakesweep.ports.storage import Storage
from lakesweep.storage.registry import open_storage
from lakesweep.storage.spec import StorageSpec

if TYPE_CHECKING:
    from lakesweep.engines.spark.engine import SparkEngine

INPROCESS = "inprocess"
SPARK = "spark"
ALL = (INPROCESS, SPARK)

CACHE_BYTES = 2 * 1024**3
"""Enough for the fingerprints of about two hundred million references."""


def open_inprocess(
    *,
    storage: Storage,
    decoder: Callable[[FormatName], Decode],
    data_dir: Path,
    memory_limit: str,
    cache_scope: str = "",
    cache_key: bytes | None = None,
) -> InProcessEngine:
    """The in-process engine. Stores in which one address may name different objects (two endpoints, two tenants) need
    different cache scopes. Without a signing key there is no cache."""
    return InProcessEngine(
        storage=storage,
        decoder=decoder,
        cache=open_cache(data_dir, cache_scope, cache_key),
        scratch_dir=data_dir / "scratch",
        memory_limit=memory_limit,
    )


def open_spark(
    *,
    storage: Storage,
    spec: StorageSpec,
    decoder: Callable[[FormatName], Decode],
    data_dir: Path,
    config: SparkConfig,
    scratch_spec: StorageSpec | None = None,
    discard: Callable[[Sequence[str]], Awaitable[None]] | None = None,
    cache_scope: str = "",
    cache_key: bytes | None = None,
    small_rows: int | None = None,
) -> SparkEngine:
    """The Spark engine. With `spec` executors open the stores that `storage` reads here. A scratch location in a store
    that Lakesweep supports needs `scratch_spec` to open it, and `discard`, which removes objects of it and no
    others. `small_rows` overrides the setting: tables up to that size are joined in this process."""
    from lakesweep.engines.spark.engine import SparkEngine  # noqa: PLC0415 - few tables need it
    from lakesweep.engines.spark.join_here import JoinHere  # noqa: PLC0415 - likewise
    from lakesweep.engines.spark.scratch import choose as choose_scratch  # noqa: PLC0415 - likewise
    from lakesweep.engines.spark.session import shared_runtime  # noqa: PLC0415 - likewise

    rows = config.small_rows if small_rows is None else small_rows
    return SparkEngine(
        runtime=shared_runtime(config),
        storage=storage,
        open_storage=partial(open_storage, spec),
        decoder=decoder,
        cache=open_cache(data_dir, cache_scope, cache_key),
        scratch=choose_scratch(config, data_dir / "scratch", scratch_spec, discard),
        small=JoinHere(directory=data_dir / "scratch", rows=rows),
    )


def spark_config(master: str, remote: str | None, conf: Mapping[str, str], scratch: str | None = None) -> SparkConfig:
    """The settings as a comparable value: equal ones share a session."""
    return SparkConfig(
        master=master, remote=remote, conf=tuple(sorted(conf.items())), scratch=scratch or conf.get(SCRATCH)
    )


def available(config: SparkConfig) -> tuple[str, ...]:
    """The engines that `auto` may use here. One that is configured by name reports itself why it cannot start."""
    return ALL if config.remote or startup.find_java() else (INPROCESS,)


def why_no_java() -> str | None:
    """Why Spark could not start on this machine; None if it could."""
    try:
        startup.check_java()
    except EngineFailed as exc:
        return str(exc)
    return None


def choose(
    kind: str, *, spark_above_files: int, estimate: Estimate | None, available: Collection[str] = (INPROCESS,)
) -> EngineChoice:
    """The engine for a table of about that size, and the reason as a sentence."""
    if kind == "auto":
        return _by_size(spark_above_files, estimate, available)
    if kind not in available:
        raise SettingsError(f'engine.kind = "{kind}": not available in this build (have: {", ".join(available)})')
    return EngineChoice(kind=kind, why=f'engine.kind = "{kind}"')


def open_cache(data_dir: Path, scope: str, key: bytes | None) -> DigestCache | None:
    """What engines with the same scope use. Without a key to sign it with there is none."""
    if key is None:
        return None
    name = hashlib.sha256(scope.encode()).hexdigest()[:16]
    return DigestCache(data_dir / "cache" / name, limit_bytes=CACHE_BYTES, key=key)


def _by_size(spark_above_files: int, estimate: Estimate | None, available: Collection[str]) -> EngineChoice:
    if estimate is None:
        return EngineChoice(
            kind=INPROCESS, why="neither the table's metadata nor an earlier run says how many files it has"
        )
    if estimate.files < spark_above_files:
        return EngineChoice(kind=INPROCESS, why=f"{estimate}, below spark_above_files = {spark_above_files}")
    size = f"{estimate}, spark_above_files = {spark_above_files}"
    if SPARK not in available:
        return EngineChoice(kind=INPROCESS, why=f"{size}, but Spark is not available: no Java here")
    return EngineChoice(kind=SPARK, why=size)
