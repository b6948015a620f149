"""Litter beside our own line, and tips of another one, where the line is not known to its start."""

from __future__ import annotations

from dataclasses import replace

from tests.builders.iceberg_metadata import MetadataTable

from lakesweep.formats.iceberg import lineage, metadata
from lakesweep.formats.iceberg.lineage import Line, Link
from lakesweep.model.location import Location

DAY_MS = 24 * lineage.RACE_MS
BEGIN_MS = 10 * DAY_MS
PLACE = "memory://lake/wh/db/t/metadata/"


def line() -> Line:
    """Two commits on the tenth day that are known; what was before has fallen out of a short log."""
    table = MetadataTable()
    table.commit(at_ms=BEGIN_MS + 2000)
    table.metadata_log = [
        {"metadata-file": f"{PLACE}{name}.metadata.json", "timestamp-ms": BEGIN_MS + at}
        for name, at in (("a", 0), ("b", 1000))
    ]
    address = table.write(table.document())
    return Line(metadata.parse(address, table.files[address]))


def link(name: str, parent: str, at_ms: int) -> tuple[str, Link]:
    location = Location.parse(f"{PLACE}{name}.metadata.json")
    log = ((f"{PLACE}{parent}.metadata.json", at_ms - 1),)
    return location.match_key, Link(location=location, updated_ms=at_ms, log=log, is_empty=False, is_away=False)


def found(*links: tuple[str, Link]) -> list[str]:
    return [one.location.name.partition(".")[0] for one, _ in lineage.judge(line(), dict(links))]


def test_old_litter_whose_parent_is_gone_stops_no_table():
    assert found(link("x", "gone", BEGIN_MS - 3 * DAY_MS)) == []


def test_a_tip_whose_own_parent_is_there_is_another_line():
    parent = link("parent", "gone", BEGIN_MS - 3 * DAY_MS - 5)
    tip = link("tip", "parent", BEGIN_MS - 3 * DAY_MS)
    assert found(parent, tip) == ["tip", "parent"]


def test_what_is_followed_by_a_file_that_is_none_of_ours_is_no_litter():
    rival = link("rival", "a", BEGIN_MS + 1000)
    assert found(rival) == []
    tip = link("tip", "rival", BEGIN_MS + 1500)
    assert found(rival, tip) == ["tip", "rival"]


def test_a_tip_younger_than_what_is_known_follows_from_none_of_ours():
    assert found(link("x", "gone", BEGIN_MS + 2 * lineage.RACE_MS)) == ["x"]


def test_a_table_that_commits_seldom_had_no_race_for_old_litter():
    """Its commits are days apart: a file from the time between may be another catalog's only commit."""
    name, old = link("x", "gone", BEGIN_MS - 3 * DAY_MS)
    slow = line()
    slow.follow(f"{PLACE}a.metadata.json", ((f"{PLACE}z.metadata.json", BEGIN_MS - 2 * DAY_MS),))
    assert [one for one, _ in lineage.judge(slow, {name: old})] == [old]
    near = replace(old, updated_ms=BEGIN_MS - 2 * DAY_MS, log=(("gone", BEGIN_MS - 2 * DAY_MS - 1),))
    assert lineage.judge(slow, {name: near}) == []
