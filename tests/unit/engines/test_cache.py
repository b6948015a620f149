"""The cache saves work and is never believed."""

import hmac
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import structlog

from lakesweep.engines import manifest_cache as cache_module
from lakesweep.engines.manifest_cache import PACK_SCHEMA, FingerprintCache
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName
from lakesweep.ports.references import REFERENCE_SCHEMA, ReferenceSource

LIMIT = 10_000_000
KEY = b"k" * 32


def source(name="m1", **changes):
    fields = {"format": FormatName.ICEBERG, "kind": "manifest", "retained": True, "size_bytes": 7, **changes}
    return ReferenceSource(location=Location.parse(f"s3://b/{name}"), **fields)


def batch(*paths):
    return pa.RecordBatch.from_arrays([pa.array(paths, pa.string())], schema=REFERENCE_SCHEMA)


@pytest.fixture
def cache(tmp_path):
    return FingerprintCache(tmp_path, limit_bytes=LIMIT, key=KEY)


def pack(*names, rows=3):
    prints = pa.array([list(range(rows))] * len(names), pa.list_(pa.uint64()))
    inside = pa.array([[True] * rows] * len(names), pa.list_(pa.bool_()))
    return pa.RecordBatch.from_arrays([pa.array(names, pa.string()), prints, inside], schema=PACK_SCHEMA)


def names(packs):
    return [name for found in packs for name in found.column("source").to_pylist()]


def entries(folder):
    return sorted(folder.glob("*/*"))


def test_another_process_loads_what_was_stored(cache, tmp_path):
    cache.store(source(), batch("s3://b/x", "s3://b/ü"))
    assert FingerprintCache(tmp_path, limit_bytes=LIMIT, key=KEY).load(source()).column("path").to_pylist() == [
        "s3://b/x",
        "s3://b/ü",
    ]
    assert cache.load(source("m2")) is None


def test_an_empty_source_is_remembered_as_empty(cache):
    cache.store(source(), batch())
    assert cache.load(source()).num_rows == 0


@pytest.mark.parametrize(
    "other",
    [
        source(size_bytes=8),
        source(entries=1),
        source(kind="log"),
        source(format=FormatName.DELTA),
        source(context=(("etag", "e"),)),
    ],
)
def test_another_length_count_kind_or_context_is_another_source(cache, other):
    cache.store(source(), batch("s3://b/x"))
    assert cache.load(other) is None


def test_a_source_without_a_recorded_length_is_not_cached(cache, tmp_path):
    cache.store(source(size_bytes=None), batch("s3://b/x"))
    assert cache.load(source(size_bytes=None)) is None
    assert entries(tmp_path) == []


def test_another_version_decodes_for_itself(cache, monkeypatch):
    cache.store(source(), batch("s3://b/x"))
    monkeypatch.setattr(cache_module, "__version__", "99.0")
    assert cache.load(source()) is None


def test_every_flipped_byte_and_every_cut_is_noticed_and_removed(cache, tmp_path):
    cache.store(source(), batch("s3://b/x", "s3://b/y"))
    (path,) = entries(tmp_path)
    whole = path.read_bytes()
    damaged = [whole[:length] for length in range(len(whole))]
    damaged += [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))]
    for bytes_on_disk in damaged:
        path.write_bytes(bytes_on_disk)
        assert cache.load(source()) is None
        assert not path.exists()
    cache.store(source(), batch("s3://b/x"))
    assert cache.load(source()) is not None


def test_a_sound_entry_of_another_source_under_this_name_is_not_believed(cache, tmp_path):
    cache.store(source("m2"), batch("s3://b/x"))
    (foreign,) = entries(tmp_path)
    content = foreign.read_bytes()
    cache.store(source("m1"), batch("s3://b/y"))
    (mine,) = set(entries(tmp_path)) - {foreign}
    mine.write_bytes(content)
    assert cache.load(source("m1")) is None
    assert cache.load(source("m2")) is not None


def test_the_least_recently_used_entry_goes_first(tmp_path):
    cache = FingerprintCache(tmp_path, limit_bytes=LIMIT, key=KEY)
    noise = os.urandom(2000).hex()
    for number in range(10):
        cache.store(source(f"m{number}"), batch(noise))
    sizes = [path.stat().st_size for path in entries(tmp_path)]
    day = 86_400
    for number in range(10):
        path = cache._path(cache_module._key(source(f"m{number}").cache_key))
        os.utime(path, (time.time() - (20 - number) * day,) * 2)
    assert cache.load(source("m0")) is not None  # used just now
    small = FingerprintCache(tmp_path, limit_bytes=sum(sizes), key=KEY)
    small.store(source("new"), batch(noise))
    assert small.load(source("new")) is not None
    assert small.load(source("m0")) is not None
    assert small.load(source("m1")) is None
    assert small.load(source("m9")) is not None
    assert sum(path.stat().st_size for path in entries(tmp_path)) <= sum(sizes)


def test_an_entry_larger_than_the_whole_cache_is_not_written(tmp_path):
    cache = FingerprintCache(tmp_path, limit_bytes=100, key=KEY)
    cache.store(source(), batch(os.urandom(500).hex()))
    assert entries(tmp_path) == []


def test_half_written_files_of_dead_writers_are_swept(cache, tmp_path):
    (tmp_path / "ab").mkdir()
    dead, fresh = tmp_path / "ab" / "x.partial", tmp_path / "ab" / "y.partial"
    dead.write_bytes(b"1")
    fresh.write_bytes(b"1")
    os.utime(dead, (0, 0))
    cache.store(source(), batch("s3://b/x"))
    assert not dead.exists()
    assert fresh.exists()


def test_a_disk_that_cannot_be_written_turns_the_cache_off_with_one_line(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    cache = FingerprintCache(blocked, limit_bytes=LIMIT, key=KEY)
    with structlog.testing.capture_logs() as logs:
        cache.store(source(), batch("s3://b/x"))
        cache.store(source("m2"), batch("s3://b/x"))
    assert [line["event"] for line in logs] == ["cache_off"]
    assert cache.load(source()) is None


def test_threads_that_store_and_load_the_same_entries_see_all_or_nothing(cache):
    rows = [f"s3://b/{number}" for number in range(500)]
    wrong = []

    def work():
        for number in range(40):
            cache.store(source(f"m{number % 5}"), batch(*rows))
            found = cache.load(source(f"m{(number + 1) % 5}"))
            if found is not None and found.column("path").to_pylist() != rows:
                wrong.append(number)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert cache.load(replace(source("m1"))) is not None


# Packs.


def test_a_pack_is_loaded_as_it_was_stored_and_another_scope_has_none(cache):
    cache.store_pack("scope", [pack("a", "b"), pack("c")])
    assert list(cache.load_pack("scope")) == [pack("a", "b"), pack("c")]
    assert list(cache.load_pack("other")) == []


def test_a_pack_may_be_made_from_what_it_replaces(cache, tmp_path):
    cache.store_pack("scope", [pack("a"), pack("b")])
    cache.store_pack("scope", (found for found in cache.load_pack("scope") if names([found]) != ["a"]))
    assert names(cache.load_pack("scope")) == ["b"]
    assert len(entries(tmp_path)) == 1


def test_of_a_damaged_pack_only_what_is_sound_counts_and_the_file_goes(cache, tmp_path):
    whole_packs = [pack("a"), pack("b")]
    cache.store_pack("scope", whole_packs)
    (path,) = entries(tmp_path)
    whole = path.read_bytes()
    boundary = len(whole) // 2
    damaged = [whole[:length] for length in range(0, len(whole), 7) if length != boundary]
    damaged += [whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :] for at in range(0, len(whole), 5)]
    for bytes_on_disk in damaged:
        path.write_bytes(bytes_on_disk)
        found = list(cache.load_pack("scope"))
        assert found in ([], whole_packs[:1])
        assert not path.exists()


def test_a_sound_pack_of_another_scope_under_this_name_is_not_believed(cache, tmp_path):
    cache.store_pack("theirs", [pack("a")])
    (foreign,) = entries(tmp_path)
    cache.store_pack("mine", [pack("b")])
    (mine,) = set(entries(tmp_path)) - {foreign}
    mine.write_bytes(foreign.read_bytes())
    assert list(cache.load_pack("mine")) == []
    assert names(cache.load_pack("theirs")) == ["a"]


def test_a_pack_larger_than_the_whole_cache_leaves_nothing_behind(tmp_path):
    cache = FingerprintCache(tmp_path, limit_bytes=5000, key=KEY)
    cache.store_pack("scope", [pack("a")])
    cache.store_pack("scope", [pack("a", rows=1000)])
    assert names(cache.load_pack("scope")) == ["a"]
    assert len(entries(tmp_path)) == 1


def test_reading_an_entry_makes_it_recent(cache, tmp_path):
    cache.store(source(), batch("s3://b/x"))
    cache.store_pack("scope", [pack("a")])
    for path in entries(tmp_path):
        os.utime(path, (1, 1))
    assert cache.load(source()) is not None
    assert names(cache.load_pack("scope")) == ["a"]
    assert all(path.stat().st_mtime > time.time() - 60 for path in entries(tmp_path))


def test_damage_that_cannot_be_removed_is_not_believed_either(cache, tmp_path, monkeypatch):
    cache.store_pack("scope", [pack("a")])
    (path,) = entries(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])

    def refuse(path, missing_ok=False):
        raise PermissionError("a directory that may only be read")

    monkeypatch.setattr(Path, "unlink", refuse)
    for _ in range(2):
        assert list(cache.load_pack("scope")) == []


def test_a_sound_signature_over_nothing_is_no_entry(cache, tmp_path):
    cache.store_pack("scope", [pack("a")])
    (path,) = entries(tmp_path)
    head = cache_module._MAGIC + hmac.digest(KEY, b"", "sha256")
    path.write_bytes(cache_module._ENTRY_LENGTH.pack(len(head)) + head)
    assert list(cache.load_pack("scope")) == []
    assert not path.exists()


def test_a_removed_pack_is_gone_and_may_be_removed_again(cache):
    cache.store_pack("scope", [pack("a")])
    cache.store_pack("other", [pack("b")])
    for _ in range(2):
        cache.remove_pack("scope")
        assert list(cache.load_pack("scope")) == []
    assert names(cache.load_pack("other")) == ["b"]


def test_references_are_no_pack_and_a_pack_is_no_references(cache):
    cache.store_pack(source().cache_key, [pack("a")])
    assert cache.load(source()) is None
    cache.store(source(), batch("s3://b/x"))
    assert list(cache.load_pack(source().cache_key)) == []


# Nothing on the disk is believed because it is there.


def test_what_somebody_else_has_signed_is_not_believed(cache, tmp_path):
    stranger = FingerprintCache(tmp_path, limit_bytes=LIMIT, key=b"x" * 32)
    stranger.store(source(), batch())
    stranger.store_pack("scope", [pack("a", rows=0)])
    assert cache.load(source()) is None
    assert list(cache.load_pack("scope")) == []


def test_fewer_references_than_metadata_records_are_read_again(cache):
    cache.store(source(), batch("s3://b/x"))
    assert cache.load(source(at_least=1)) is not None
    assert cache.load(source(at_least=2)) is None


def test_other_code_decodes_for_itself(cache, monkeypatch):
    cache.store(source(), batch("s3://b/x"))
    monkeypatch.setattr(cache_module, "_decoders", lambda: "changed in place")
    assert cache.load(source()) is None


def test_the_code_is_known_by_what_is_on_disk():
    found = cache_module._decoders()
    assert len(found) == 64
    top = Path(cache_module.lakesweep.__file__).parent
    assert all((top / part).exists() for part in cache_module._DECODERS)


def test_nobody_else_may_enter_the_directory(tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    FingerprintCache(folder, limit_bytes=LIMIT, key=KEY).store(source(), batch("s3://b/x"))
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_directory_of_another_user_is_not_used(tmp_path, monkeypatch):
    FingerprintCache(tmp_path, limit_bytes=LIMIT, key=KEY).store(source(), batch("s3://b/x"))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    cache = FingerprintCache(tmp_path, limit_bytes=LIMIT, key=KEY)
    assert cache.load(source()) is None
    cache.store(source("m2"), batch("s3://b/x"))
    assert len(entries(tmp_path)) == 1


def test_a_link_in_place_of_the_directory_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "cache").symlink_to(tmp_path / "elsewhere")
    FingerprintCache(tmp_path / "cache", limit_bytes=LIMIT, key=KEY).store(source(), batch("s3://b/x"))
    assert list((tmp_path / "elsewhere").iterdir()) == []
