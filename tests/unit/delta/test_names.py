"""Names of the log: what is not known for certain is nobody's business."""

from __future__ import annotations

import pytest

from lakesweep.formats.delta import log
from lakesweep.formats.delta.log import LogKind

V = "00000000000000000007"
UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"{V}.json", LogKind.COMMIT),
        (f"{V}.crc", LogKind.CHECKSUM),
        (f"{V}.checkpoint.parquet", LogKind.CHECKPOINT),
        (f"{V}.checkpoint.0000000001.0000000003.parquet", LogKind.CHECKPOINT),
        (f"{V}.checkpoint.{UUID}.json", LogKind.CHECKPOINT),
        (f"{V}.checkpoint.{UUID}.parquet", LogKind.CHECKPOINT),
        (f"{V}.{V}.compacted.json", LogKind.COMPACTED),
        (f"_staged_commits/{V}.{UUID}.json", LogKind.STAGED),
        (f"_sidecars/{UUID}.parquet", LogKind.SIDECAR),
        ("_last_checkpoint", LogKind.OTHER),
        ("_last_vacuum_info", LogKind.OTHER),
        ("7.json", LogKind.OTHER),
        (f"{V}.json.tmp", LogKind.OTHER),
        (f".{V}.json.crc", LogKind.OTHER),
        (f"{V}.{UUID}.json", LogKind.OTHER),
        (f"_commits/{V}.{UUID}.json", LogKind.OTHER),
        (f"_sidecars/deep/{UUID}.parquet", LogKind.OTHER),
        (f"sub/{V}.json", LogKind.OTHER),
        (f"{V}.checkpoint.json", LogKind.OTHER),
        (f"{V}.json\n", LogKind.OTHER),
        ("_autostats/00000000000000000007.0000000000.stats.json", LogKind.OTHER),
    ],
)
def test_each_name_is_what_the_protocol_says(name, kind):
    assert log.parse_name(name).kind is kind


def test_a_name_gives_its_version_and_its_part():
    part = log.parse_name(f"{V}.checkpoint.0000000002.0000000003.parquet")
    assert (part.version, part.part, part.parts) == (7, 2, 3)
    assert log.parse_name(f"{V}.00000000000000000009.compacted.json").end_version == 9


def test_a_companion_belongs_to_its_file():
    assert log.companion(f"{V}.json") == f".{V}.json.crc"
    assert log.beside(f"_sidecars/.{UUID}.parquet.crc") == f"_sidecars/{UUID}.parquet"
    assert log.beside(f"{V}.crc") == f"{V}.crc"
