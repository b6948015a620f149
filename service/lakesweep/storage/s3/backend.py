"""Open S3. Imported by `storage.registry`."""

from __future__ import annotations

from dataclasses import replace

from lakesweep.ports.deleter import Deleter, Mover
from lakesweep.ports.storage import Storage, Writer
from lakesweep.ports.store_rules import StoreRulesReader
from lakesweep.storage.adaptive_limiter import Gate
from lakesweep.storage.s3.client import credentials_from
from lakesweep.storage.s3.deleter import S3Deleter
from lakesweep.storage.s3.mover import S3Mover
from lakesweep.storage.s3.rules import S3Rules
from lakesweep.storage.s3.settings import S3Options
from lakesweep.storage.s3.store import S3Storage, S3Writer
from lakesweep.storage.spec import StorageSpec


def storage(spec: StorageSpec) -> Storage:
    return S3Storage(spec.options(S3Options))


def deleter(spec: StorageSpec, gate: Gate | None) -> Deleter:
    return S3Deleter(_paced(spec), gate)


def mover(spec: StorageSpec, gate: Gate | None) -> Mover:
    return S3Mover(_paced(spec), gate)


def rules(spec: StorageSpec) -> StoreRulesReader:
    return S3Rules(spec.options(S3Options))


def writer(spec: StorageSpec) -> Writer:
    return S3Writer(spec.options(S3Options))


async def credentials(spec: StorageSpec) -> str | None:
    return await credentials_from(spec.options(S3Options))


def _paced(spec: StorageSpec) -> S3Options:
    options = spec.options(S3Options)
    if spec.delete_concurrency is None:
        return options
    return replace(options, delete_concurrency=spec.delete_concurrency)
