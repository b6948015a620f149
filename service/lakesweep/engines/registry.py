"""The list of engines, and which one plans a table: by setting, or by the table's size."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lakesweep.engines.inprocess import InProcessEngine
from lakesweep.engines.manifest_cache import FingerprintCache
from lakesweep.engines.scratch import remove_abandoned
from lakesweep.engines.spark import startup
from lakesweep.engines.spark.config import SCRATCH, SparkConfig
from lakesweep.model import run_document
from lakesweep.model.errors import EngineFailed, SettingsError
from lakesweep.model.run import EngineChoice
from lakesweep.model.table import FormatName
from lakesweep.ports.references import Decode
from lakesweep.ports.storage import Storage
from lakesweep.ports.table import TableState
from lakesweep.storage.registry import open_storage
from lakesweep.storage.spec import StorageSpec

if TYPE_CHECKING:
    from lakesweep.engines.spark.engine import SparkEngine

INPROCESS = "inprocess"
SPARK = "spark"
ALL = (INPROCESS, SPARK)

RUNS_LOOKED_AT = 5
"""How many runs to look back: one that failed before it listed has no number, but an older one may."""
CACHE_BYTES = 2 * 1024**3
"""Enough for the fingerprints of about two hundred million references."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number of files and where it comes from."""

    files: int
    source: str

    def __str__(self) -> str:
        return f"about {self.files} files by {self.source}"


def estimate(state: TableState, runs: Iterable[run_document.Run]) -> Estimate | None:
    """How many files a table has, before it is listed. `runs` are run documents, newest first.

    Metadata counts live files only, and some tables keep no count; a run has listed everything, garbage included, but
    some time ago. The larger number wins: an engine that is too small for a table is worse than one that is too large.
    """
    known = state.estimated_files
    by_metadata = None if known is None else Estimate(files=known, source="its metadata")
    estimates = [one for one in (by_metadata, _by_last_run(runs)) if one is not None]
    return max(estimates, key=lambda one: one.files, default=None)


def _by_last_run(runs: Iterable[run_document.Run]) -> Estimate | None:
    for run in runs:
        kept = run["kept"]
        listed = kept["live"] + kept["young"] + kept["reserved"] + kept["foreign"] + run["orphans"]["count"]
        if listed:
            left = listed - run["deleted"]["count"]
            return Estimate(files=max(left, 0), source=f"the run of {run['started_at'][:16].replace('T', ' ')} UTC")
    return None


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
) -> SparkEngine:
    """The Spark engine. With `spec` executors open the stores that `storage` reads here. A scratch location in a store
    that Lakesweep supports needs `scratch_spec` to open it, and `discard`, which removes objects of it and no
    others."""
    from lakesweep.engines.spark.engine import SparkEngine  # noqa: PLC0415 - few tables need it
    from lakesweep.engines.spark.join_here import JoinHere  # noqa: PLC0415 - likewise
    from lakesweep.engines.spark.scratch import choose as choose_scratch  # noqa: PLC0415 - likewise
    from lakesweep.engines.spark.session import shared_runtime  # noqa: PLC0415 - likewise

    return SparkEngine(
        runtime=shared_runtime(config),
        storage=storage,
        open_storage=partial(open_storage, spec),
        decoder=decoder,
        cache=open_cache(data_dir, cache_scope, cache_key),
        scratch=choose_scratch(config, data_dir / "scratch", scratch_spec, discard),
        small=JoinHere(directory=data_dir / "scratch", rows=config.small_rows),
    )


async def tidy_scratch(
    *,
    data_dir: Path,
    config: SparkConfig,
    scratch_spec: StorageSpec,
    discard: Callable[[Sequence[str]], Awaitable[None]],
) -> None:
    """Remove what killed processes left in scratch, as the next plan would; plans under way keep theirs. Where only
    Spark can write, plans alone do it. Raises EngineFailed if the place cannot be reached."""
    await remove_abandoned(data_dir / "scratch")
    if config.scratch is None:
        return
    from lakesweep.engines.spark.scratch import choose as choose_scratch  # noqa: PLC0415 - few services need it

    try:
        await choose_scratch(config, data_dir / "scratch", scratch_spec, discard).remove_abandoned()
    except (OSError, ValueError) as exc:  # a directory or an address that cannot be read
        raise EngineFailed(f"engine.spark.scratch = {config.scratch} cannot be used: {exc}") from exc


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
        raise SettingsError(f'engine.kind = "{kind}": not available in this build (available: {", ".join(available)})')
    return EngineChoice(kind=kind, why=f'engine.kind = "{kind}"')


def open_cache(data_dir: Path, scope: str, key: bytes | None) -> FingerprintCache | None:
    """What engines with the same scope use. Without a key to sign it with there is none."""
    if key is None:
        return None
    name = hashlib.sha256(scope.encode()).hexdigest()[:16]
    return FingerprintCache(data_dir / "cache" / name, limit_bytes=CACHE_BYTES, key=key)


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
