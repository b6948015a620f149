"""The one decision that can delete: every branch, and the batch form against the single one."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakesweep.cleanup import classify
from lakesweep.model.files import Verdict
from lakesweep.ports.table import FileKind, MatchBy

CUTOFF = datetime(2026, 3, 1, 12, 0, 0, 500, tzinfo=UTC)
OLD = CUTOFF - timedelta(days=1)
DATA = FileKind(kind="data")
FOREIGN = FileKind(kind="other", foreign=True)
RESERVED = FileKind(kind="hint", reserved=True)
KINDS = {"d": DATA, "f": FOREIGN, "r": RESERVED, "b": FileKind(kind="both", reserved=True, foreign=True, stage=3)}


@dataclass(frozen=True)
class ByFirstLetter:
    match_by = MatchBy.ADDRESS

    def classify(self, path):
        return KINDS[path[0]]


def judge(kind=DATA, *, expired=False, elsewhere=False, modified_at=OLD):
    return classify.judge(kind, expired=expired, elsewhere=elsewhere, modified_at=modified_at, cutoff=CUTOFF)


def test_an_old_unreferenced_file_of_the_format_is_an_orphan():
    assert judge() is Verdict.ORPHAN


@pytest.mark.parametrize(
    "modified_at",
    [None, CUTOFF, CUTOFF + timedelta(microseconds=1), CUTOFF + timedelta(days=9000)],
    ids=["unknown", "at the cutoff", "just after it", "in the future"],
)
def test_a_file_that_is_not_surely_older_than_the_cutoff_is_young(modified_at):
    assert judge(modified_at=modified_at) is Verdict.YOUNG


def test_times_inside_the_same_millisecond_as_the_cutoff_are_young():
    assert judge(modified_at=CUTOFF - timedelta(microseconds=400)) is Verdict.YOUNG
    assert judge(modified_at=CUTOFF - timedelta(milliseconds=1)) is Verdict.ORPHAN


def test_an_expired_file_needs_no_grace():
    assert judge(expired=True, modified_at=None) is Verdict.ORPHAN
    assert judge(expired=True, modified_at=CUTOFF) is Verdict.ORPHAN


def test_a_name_the_format_does_not_write_stays():
    assert judge(FOREIGN) is Verdict.FOREIGN


def test_a_file_the_table_committed_is_its_own_whatever_its_name():
    assert judge(FOREIGN, expired=True) is Verdict.ORPHAN


@pytest.mark.parametrize("expired", [False, True])
def test_a_reserved_name_stays_whoever_named_it(expired):
    assert judge(RESERVED, expired=expired) is Verdict.RESERVED


@pytest.mark.parametrize("expired", [False, True])
def test_a_path_that_is_live_in_another_bucket_stays(expired):
    assert judge(elsewhere=True, expired=expired) is Verdict.FOREIGN


def test_a_cutoff_without_a_zone_is_refused():
    with pytest.raises(TypeError):
        classify.judge(DATA, expired=False, elsewhere=False, modified_at=OLD, cutoff=CUTOFF.replace(tzinfo=None))


moments = st.none() | st.integers(-5, 5).map(lambda ms: CUTOFF + timedelta(milliseconds=ms))
rows = st.lists(st.tuples(st.sampled_from(sorted(KINDS)), moments, st.booleans(), st.booleans()), max_size=20)


@settings(deadline=None)
@given(rows)
@example([("d", CUTOFF, False, False), ("d", CUTOFF - timedelta(milliseconds=1), False, False)])
def test_a_batch_is_judged_as_its_rows_are(rows):
    batch = pa.RecordBatch.from_pylist(
        [
            {"path": f"{kind}{n}", "size_bytes": n, "modified_at": at, "etag": None, "expired": e, "elsewhere": w}
            for n, (kind, at, e, w) in enumerate(rows)
        ],
        schema=classify.UNREFERENCED_SCHEMA,
    )
    judged = classify.judge_batch(batch, ByFirstLetter(), CUTOFF)
    assert judged.schema == classify.JUDGED_SCHEMA
    for row, (kind, at, expired, elsewhere) in zip(judged.to_pylist(), rows, strict=True):
        found = judge(KINDS[kind], expired=expired, elsewhere=elsewhere, modified_at=at)
        assert row["verdict"] == found
        assert row["reason"] == (None if found != "orphan" else "expired" if expired else "unreferenced")
        assert (row["kind"], row["stage"]) == (KINDS[kind].kind, KINDS[kind].stage)
        assert row["size_bytes"] == int(row["path"][1:])
