"""Open S3. What `storage.registry` imports."""

from __future__ import annotations

from dataclasses import replace

from lakesweep.ports.deleter import Deleter
from lakesweep.ports.storage import Storage, Writer
from lakesweep.storage.adaptive_limiter import Gate
from lakesweep.storage.s3.deleter import S3Deleter
from lakesweep.storage.s3.options import S3Options
from lakesweep.storage.s3.store import S3Storage, S3Writer
from lakesweep.storage.spec import StorageSpec


def storage(spec: StorageSpec) -> Storage:
    """Reading."""
    return S3Storage(spec.options(S3Options))


def deleter(spec: StorageSpec, gate: Gate | None) -> Deleter:
    """Deleting. Deleters with one gate share their pace."""
    options = spec.options(S3Options)
    if spec.delete_concurrency is not None:
        options = replace(options, delete_concurrency=spec.delete_concurrency)
    return S3Deleter(options, gate)


def writer(spec: StorageSpec) -> Writer:
    """Writing."""
    return S3Writer(spec.options(S3Options))
