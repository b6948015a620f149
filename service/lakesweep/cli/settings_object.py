"""Read a settings file from an object store, before there are settings that say how stores are reached.

Credentials, endpoint and region are those of the environment (the AWS chain, AWS_ENDPOINT_URL, AWS_REGION). Only read.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor

from lakesweep.model.errors import SettingsError, StorageError
from lakesweep.model.location import Location

_LARGEST = 16 * 1024 * 1024


def read(address: str) -> bytes:
    """The file, or SettingsError. In a thread of its own: a loop may be running in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(_read(address))).result()


async def _read(address: str) -> bytes:
    from lakesweep.storage.registry import open_storage  # noqa: PLC0415 - heavy, and few settings are there
    from lakesweep.storage.s3.settings import S3Options  # noqa: PLC0415 - likewise
    from lakesweep.storage.spec import StorageSpec  # noqa: PLC0415 - likewise

    variables = os.environ.get
    endpoint = variables("AWS_ENDPOINT_URL_S3") or variables("AWS_ENDPOINT_URL")
    region = variables("AWS_REGION") or variables("AWS_DEFAULT_REGION")
    options = S3Options(endpoint_url=endpoint, region=region, path_style=endpoint is not None)
    storage = open_storage(StorageSpec(stores=(options,)))
    try:
        return await storage.read(Location.parse(address), _LARGEST)
    except (StorageError, ValueError) as exc:
        raise SettingsError(f"cannot read the settings {address}: {exc}") from exc
    finally:
        await storage.aclose()
