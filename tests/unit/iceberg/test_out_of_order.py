"""Which metadata files of a table's past are kept because one of a lower version was written later."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lakesweep.formats.iceberg.other_histories import Stamp, out_of_order

NOW = datetime(2026, 1, 10, tzinfo=UTC)
HEAD = "s3://lake/t/metadata/00009-h.metadata.json"
CASES = {
    "in order": ({"00001-a": 9, "00002-b": 8, "00003-c": 1}, []),
    "at the same time": ({"00001-a": 5, "00002-b": 5}, []),
    "the same version twice": ({"00002-a": 1, "00002-b": 5}, []),
    "one was restored": ({"00001-a": 1, "00002-b": 8}, ["00002-b"]),
    "and others followed": ({"00000-z": 9, "00001-a": 1, "00002-b": 8, "00003-c": 0}, ["00002-b", "00003-c"]),
    "versions are numbers": ({"v9": 1, "v10": 8}, []),
    "as Hadoop names them": ({"v1": 1, "v2": 8}, ["v2"]),
    "one of unknown age": ({"00001-a": None, "00002-b": 8}, ["00002-b"]),
    "restored so long ago that it is deleted now": ({"00001-a": 4, "00002-b": 8}, []),
    "beyond the head": ({"00001-a": 1, "00012-b": 8}, []),
    "without a number": ({"a": 1, "00002-b": 8}, []),
}


@pytest.mark.parametrize("case", CASES)
def test_what_shows_whose_a_younger_file_of_a_lower_version_is(case):
    ages, kept = CASES[case]
    stamps = [
        Stamp(f"s3://lake/t/metadata/{name}.metadata.json", 1, None if age is None else NOW - timedelta(days=age), None)
        for name, age in ages.items()
    ]
    found = out_of_order(stamps, HEAD, NOW - timedelta(days=3))
    assert [path.rpartition("/")[2].removesuffix(".metadata.json") for path in found] == kept


def test_a_catalog_that_numbers_no_files_has_no_order():
    stamps = [Stamp(f"s3://t/metadata/0000{n}-a.metadata.json", 1, NOW - timedelta(days=n), None) for n in (1, 2)]
    assert out_of_order(stamps, "s3://t/metadata/abc.metadata.json", NOW - timedelta(days=3)) == ()
