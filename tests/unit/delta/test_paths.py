"""Log paths become raw addresses: decoded exactly once, and never lost because the root has a second name."""

from __future__ import annotations

import uuid
from urllib.parse import quote

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesweep.cleanup import addresses
from lakesweep.formats.delta import paths
from lakesweep.model.location import Location
from lakesweep.ports.table import MatchBy

LOCAL = Location.parse("/data/t")
S3 = Location.parse("s3a://lake/acme/t/")


@pytest.mark.parametrize(
    ("spelled", "address"),
    [
        ("part-0.parquet", "file:///data/t/part-0.parquet"),
        ("k=a%20b/x.parquet", "file:///data/t/k=a b/x.parquet"),
        ("k=e%253Af/x.parquet", "file:///data/t/k=e%3Af/x.parquet"),
        ("_2=bar+%252522/x.parquet", "file:///data/t/_2=bar+%2522/x.parquet"),
        ("special%20p@%23h", "file:///data/t/special p@#h"),
        ("k=%C3%BC/x", "file:///data/t/k=ü/x"),
        ("file:/data/t/a/b", "file:///data/t/a/b"),
        ("file:///data/t/a%20b", "file:///data/t/a b"),
        ("/data/t/a/b", "file:///data/t/a/b"),
        ("FILE:///data/t/x", "file:///data/t/x"),
    ],
)
def test_a_path_is_decoded_exactly_once(spelled, address):
    assert paths.resolve(spelled, LOCAL).address == address


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_an_absolute_path_inside_the_root_is_one_of_the_tables_files(scheme):
    place = paths.resolve(f"{scheme}://lake/acme/t/k%3D1/x.parquet", S3)
    assert place.address == "s3://lake/acme/t/k=1/x.parquet"
    assert not place.aliases


def test_a_path_without_a_scheme_is_in_the_tables_own_bucket():
    assert paths.resolve("/acme/t/x.parquet", S3).address == "s3://lake/acme/t/x.parquet"


@pytest.mark.parametrize(
    "spelled", ["s3://lake/acme/t10/x", "s3://other/acme/t/x", "/acme/other/x", "gs://lake/acme/t/x"]
)
def test_a_path_elsewhere_is_not_an_address_of_ours(spelled):
    assert paths.resolve(spelled, S3).address is None


def test_a_path_under_another_name_of_the_root_keeps_the_file_under_ours():
    """A symlinked root: the log says /mnt/disk/t, we look at /data/t."""
    place = paths.resolve("file:/mnt/disk/t/k=1/x.parquet", LOCAL)
    assert "file:///data/t/k=1/x.parquet" in place.aliases
    assert all(alias.startswith("file:///data/t/") for alias in place.aliases)


@pytest.mark.parametrize("spelled", ["", "k=%FF%FE/x"])
def test_a_path_that_cannot_be_understood_raises(spelled):
    with pytest.raises(ValueError):
        paths.resolve(spelled, LOCAL)


_NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1).filter(
    lambda name: name not in (".", "..")
)


@given(_NAMES, _NAMES)
def test_whatever_a_writer_encodes_is_found_again_byte_for_byte(directory, name):
    spelled = f"{quote(directory)}/{quote(name)}"
    assert paths.resolve(spelled, LOCAL).address == f"file:///data/t/{directory}/{name}"


def test_a_deletion_vector_is_named_by_its_encoded_uuid():
    """The example of the protocol."""
    descriptor = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4}
    place = paths.deletion_vector(descriptor, LOCAL)
    assert place is not None
    assert place.address == "file:///data/t/ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert paths.deletion_vector_id(descriptor) == "uab^-aqEH.-t@S}K{vb[*k^@4"


@given(st.uuids())
def test_every_uuid_survives_its_encoding(value):
    assert paths.z85_decode(_encode(value)) == value.bytes


def _encode(value: uuid.UUID) -> str:
    text = ""
    for start in range(0, 16, 4):
        number = int.from_bytes(value.bytes[start : start + 4], "big")
        text += "".join(paths._Z85[number // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return text


def test_inline_and_absolute_deletion_vectors():
    assert paths.deletion_vector({"storageType": "i", "pathOrInlineDv": "abc"}, LOCAL) is None
    inside = paths.deletion_vector({"storageType": "p", "pathOrInlineDv": "file:///data/t/dv%20x.bin"}, LOCAL)
    assert inside is not None
    assert inside.address == "file:///data/t/dv x.bin"


@pytest.mark.parametrize(
    "descriptor",
    [
        {"storageType": "r", "pathOrInlineDv": "x.bin"},
        {"storageType": "u", "pathOrInlineDv": "short"},
        {"storageType": "u", "pathOrInlineDv": "~" * 20},
        {"storageType": "u", "pathOrInlineDv": "0" * 19 + "~"},
        {"storageType": "u", "pathOrInlineDv": "#" * 20},
        {"storageType": "u", "pathOrInlineDv": "é" * 20},
        {"storageType": "u", "pathOrInlineDv": "\ud800" * 20},
        {"storageType": "u", "pathOrInlineDv": "0" * 15},
        {"storageType": "u"},
    ],
)
def test_a_deletion_vector_of_an_unknown_kind_raises(descriptor):
    with pytest.raises(ValueError):
        paths.deletion_vector(descriptor, LOCAL)


@pytest.mark.parametrize(
    ("spelled", "counted"),
    [
        ("s3a://other//t/a.parquet", "s3://other/t/a.parquet"),
        ("/other/a%20b.parquet", "s3://lake/other/a b.parquet"),
        ("../u/a.parquet", "s3://lake/u/a.parquet"),
        ("s3://other/x/../../a.parquet", "s3://other/a.parquet"),
        ("dbfs:/mnt/a.parquet", "dbfs://mnt/a.parquet"),
        ("file://host/a.parquet", "file:///host/a.parquet"),
        ("s3:///lake/t/a.parquet", None),
        ("../t/a.parquet", None),
        ("s3://../a.parquet", None),
        ("s3://lake/t/a.parquet", None),
        ("a.parquet", None),
    ],
)
def test_references_out_of_the_root_are_counted_by_address(spelled, counted):
    root = Location.parse("s3://lake/t")
    assert paths.resolve(spelled, root).elsewhere == counted
    if counted:
        placed = addresses.place(pa.array([counted]), addresses.Role.COUNTED, MatchBy.ADDRESS, [root])
        assert placed.select(["inside", "outside"]).to_pylist() == [{"inside": False, "outside": True}]
