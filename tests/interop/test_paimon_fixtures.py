"""Tables of many writers (Java 0.9 to 1.3 and C++; Avro and ORC manifests): planned, nothing live a candidate."""

from __future__ import annotations

import json
import tarfile
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from tests.builders import paimon

from lakesweep.formats import avro
from lakesweep.formats.avro_columns import compiled
from lakesweep.formats.paimon import manifests
from lakesweep.model.files import Reason, Verdict
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import Outcome

NAMES = paimon.fixture_names()
ORPHANS_ONLY = CleanupPolicy(dry_run=False, max_snapshot_age=timedelta(days=100_000))


def roots(table: Path) -> list[Path]:
    """Every snapshot and tag file, of branches too."""
    return [
        *(file for file in table.rglob("snapshot/snapshot-*") if file.name.removeprefix("snapshot-").isdecimal()),
        *table.rglob("tag/tag-*"),
    ]


def live(table: Path, root: Path) -> set[str]:
    """What one snapshot needs, read straight from its files: names only."""
    document = json.loads(root.read_text())
    found: set[str] = set()
    standing: dict[str, set[str]] = {}
    for key in ("baseManifestList", "deltaManifestList"):
        found.add(document[key])
        for meta in manifests.read_list((table / "manifest" / document[key]).read_bytes()):
            found.add(meta.name)
            for entry in manifests.read_entries((table / "manifest" / meta.name).read_bytes()):
                file = entry["_FILE"]
                identity = f"{entry['_PARTITION'].hex()}/{entry['_BUCKET']}/{file['_LEVEL']}/{file['_FILE_NAME']}"
                if entry["_KIND"] == 0:
                    standing[identity] = {file["_FILE_NAME"], *(file["_EXTRA_FILES"] or ())}
                else:
                    standing.pop(identity, None)
    if document.get("indexManifest"):
        found.add(document["indexManifest"])
        index = (table / "manifest" / document["indexManifest"]).read_bytes()
        found |= {entry.name for entry in manifests.read_index(index)}
    return found.union(*standing.values()) if standing else found


def by_name(table: Path, names: set[str]) -> set[str]:
    return {path for path in paimon.files_of(table) if path.rpartition("/")[2] in names}


@pytest.mark.parametrize("name", NAMES)
async def test_nothing_live_is_a_candidate_and_planted_orphans_are_found_exactly(name: str, tmp_path: Path) -> None:
    table = paimon.fixture_table(name, tmp_path / "tables")
    needed = set().union(*(live(table, root) for root in roots(table)))
    paimon.age(table, timedelta(days=10))
    bucket = next(file.parent for file in sorted(table.rglob("bucket-*/*")))
    planted = {
        "manifest/manifest-stray-0",
        "manifest/manifest-list-stray-0",
        f"{bucket.relative_to(table)}/data-stray-0.parquet",
    }
    already = {
        path
        for path in paimon.files_of(table) - by_name(table, needed)
        if path.startswith("manifest/") or ("/bucket-" in f"/{path}" and path.rpartition("/")[2].startswith("data-"))
    }
    paimon.plant(table, *planted, by=timedelta(days=10))
    run = await paimon.clean(table, paimon.bench(tmp_path, tmp_path / "scratch"), ORPHANS_ONLY, execute=False)
    assert run.outcome is Outcome.DRY_RUN, run.reason
    found = {row.path.removeprefix(f"file://{table}/"): row for row in paimon.candidates(run)}
    assert set(found) == planted | already
    assert {row.reason for row in found.values()} == {Reason.UNREFERENCED}
    assert run.plan is not None
    assert run.plan.missing_count == 0
    assert run.plan.verdicts[Verdict.LIVE].files >= len(by_name(table, needed))


@pytest.mark.parametrize("name", NAMES)
async def test_after_expiring_all_but_the_latest_exactly_what_is_needed_is_left(name: str, tmp_path: Path) -> None:
    table = paimon.fixture_table(name, tmp_path / "tables")
    run = await paimon.clean(table, paimon.bench(tmp_path, tmp_path / "scratch"), paimon.everything_old())
    assert run.outcome is Outcome.DONE, run.reason
    left = roots(table)
    assert len([file for file in left if file.parent.parent == table and file.name.startswith("snapshot-")]) == 1
    needed = set().union(*(live(table, root) for root in left))
    assert by_name(table, needed) == {path for path in paimon.files_of(table) if path.rpartition("/")[2] in needed}
    missing = needed - {path.rpartition("/")[2] for path in paimon.files_of(table)}
    assert not missing
    again = await paimon.clean(table, paimon.bench(tmp_path, tmp_path / "scratch"), paimon.everything_old())
    assert again.deletion.deleted.files == 0


@pytest.mark.skipif(not NAMES, reason="the collection of Paimon tables is not on this machine")
def test_every_avro_manifest_is_read_fast_and_as_fastavro_reads_it() -> None:
    judged = 0
    with tarfile.open(paimon.FIXTURES) as archive:
        for member in archive:
            file = archive.extractfile(member) if "/manifest/" in member.name else None
            data = file.read() if file else b""
            if data[:4] != avro.MAGIC:
                continue
            frame = avro.walk(data)
            paths = {column: path for column, (path, _) in manifests.COLUMNS.items()}
            places = {column: path for column, path in paths.items() if avro._has_field(frame.schema, path)}
            if "name" not in places:  # a manifest list
                continue
            assert {"version", "kind", "partition", "bucket", "extra", "created"} <= set(places)
            fast = avro.read_fast(data, frame, compiled(frame.schema, places))
            assert fast is not None, "the fast reader must not give up on what Paimon writers write"
            records = avro.read_records(data)
            for column, path in places.items():
                slow = pa.array(avro.values(records, path)).cast(manifests.COLUMNS[column][1])
                assert fast[column].cast(manifests.COLUMNS[column][1]).equals(slow)
            judged += 1
    assert judged > 50
