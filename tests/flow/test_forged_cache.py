"""What is kept on the service's own disk is no reason to delete a file: forged entries are found out and read again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from tests.builders.cycles import CACHE_KEY
from tests.builders.iceberg_flow import clean, plant

from lakesweep.engines import manifest_cache as cache_module
from lakesweep.engines.manifest_cache import PACK_SCHEMA, FingerprintCache
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import Outcome

POLICY = CleanupPolicy(max_snapshot_age=timedelta(days=30))
STRANGER = b"not the installation's key......"


def forge(scratch: Path, old_key: bytes, new_key: bytes) -> int:
    """Put packs without any fingerprint, rightly framed and signed, in the place of all that are cached."""
    forged = 0
    for path in (scratch / "cache").rglob("*.refs"):
        cache = FingerprintCache(path.parents[1], limit_bytes=10**9, key=old_key)
        scope, packs = _read(path, cache)
        keys = pa.array([key for pack in packs for key in pack.column("source").to_pylist()], pa.string())
        empty = [pa.array([[]] * len(keys), PACK_SCHEMA.field(name).type) for name in ("prints", "inside")]
        emptied = pa.RecordBatch.from_arrays([keys, *empty], schema=PACK_SCHEMA)
        path.write_bytes(FingerprintCache(path.parents[1], limit_bytes=10**9, key=new_key)._pack(emptied, scope, None))
        forged += len(keys)
    return forged


def _read(path: Path, cache: FingerprintCache) -> tuple[bytes, list[pa.RecordBatch]]:
    body = path.read_bytes()[8 + 8 + 32 :]
    (length,) = cache_module._KEY_LENGTH.unpack(body[:4])
    key = body[4 : 4 + length]
    found: Iterator[pa.RecordBatch] = cache._load(key, (PACK_SCHEMA,))
    return key, list(found)


@pytest.mark.parametrize("key", [STRANGER, CACHE_KEY], ids=["signed by a stranger", "signed with our own key"])
async def test_empty_fingerprints_in_the_cache_delete_no_live_file(lake, bench, key):
    table = lake.create()
    for number in range(4):
        table.append(number)
    orphan = plant(table, "data/orphan.parquet")
    await clean(bench, table, POLICY, execute=False)
    assert forge(bench.scratch, CACHE_KEY, key) == 4
    live = lake.files() - {f"file://{orphan}"}
    run = await clean(bench, table, POLICY)
    assert run.outcome is Outcome.DONE, run.reason
    assert lake.files() >= live
    assert not Path(orphan).exists()
    assert len(table.rows()) == 4
