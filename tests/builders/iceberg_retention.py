"""What test_retention.py and its neighbours are made of."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import strategies as st

from lakesweep.formats.iceberg import metadata
from lakesweep.formats.iceberg.metadata import HistoryProperties, Ref, RefKind, SnapshotEntry, TableMetadata
from lakesweep.model.snapshot import ExpiryPlan

HOUR = 3_600_000


NOW_MS = 1_000_000 * HOUR


NOW = metadata.EPOCH + timedelta(milliseconds=NOW_MS)


def table(snapshots: dict[int, tuple[int | None, int]], refs: list[Ref], **history: int) -> TableMetadata:
    """Snapshots as id -> (parent, age in hours)."""
    main = next((ref.snapshot_id for ref in refs if ref.name == "main"), None)
    return TableMetadata(
        address="memory://lake/t/metadata/1.metadata.json",
        format_version=2,
        uuid=None,
        location="memory://lake/t",
        properties={},
        current_snapshot_id=main,
        snapshots=tuple(
            SnapshotEntry(
                id=one,
                parent=parent,
                timestamp_ms=NOW_MS - age * HOUR,
                manifest_list=f"memory://lake/t/metadata/snap-{one}.avro",
                manifests=(),
                summary={},
            )
            for one, (parent, age) in snapshots.items()
        ),
        refs=tuple(refs),
        metadata_log=(),
        logged_ms=(),
        statistics=(),
        partition_statistics=(),
        partition_fields=(),
        history=HistoryProperties(**history),
        encrypted=False,
    )


def branch(name: str, snapshot_id: int, **own: int) -> Ref:
    return Ref(name=name, kind=RefKind.BRANCH, snapshot_id=snapshot_id, **own)


def tag(name: str, snapshot_id: int, **own: int) -> Ref:
    return Ref(name=name, kind=RefKind.TAG, snapshot_id=snapshot_id, **own)


def gone(plan: ExpiryPlan) -> set[int]:
    return {int(snapshot.id) for snapshot in plan.expire}


def why(plan: ExpiryPlan, snapshot_id: int) -> str:
    return next(kept.why for kept in plan.keep if kept.id == str(snapshot_id))


@st.composite
def tables(draw: st.DrawFn) -> TableMetadata:
    count = draw(st.integers(0, 8))
    snapshots: dict[int, tuple[int | None, int]] = {}
    for one in range(1, count + 1):
        parent = draw(st.one_of(st.none(), st.integers(1, count)))
        snapshots[one] = (parent, draw(st.integers(0, 12)))
    own = st.one_of(st.none(), st.integers(1, 12).map(lambda hours: hours * HOUR))
    refs = []
    if count:
        refs.append(
            branch(
                "main",
                draw(st.integers(1, count)),
                max_ref_age_ms=draw(own),
                max_snapshot_age_ms=draw(own),
                min_snapshots_to_keep=draw(st.one_of(st.none(), st.integers(1, 4))),
            )
        )
    for index in range(draw(st.integers(0, 3))):
        target = draw(st.integers(1, 9))
        if draw(st.booleans()):
            refs.append(tag(f"t{index}", target, max_ref_age_ms=draw(own)))
        else:
            refs.append(
                branch(
                    f"b{index}",
                    target,
                    max_ref_age_ms=draw(own),
                    max_snapshot_age_ms=draw(own),
                    min_snapshots_to_keep=draw(st.one_of(st.none(), st.integers(1, 4))),
                )
            )
    history = {
        "max_snapshot_age_ms": draw(own),
        "max_ref_age_ms": draw(own),
        "min_snapshots_to_keep": draw(st.one_of(st.none(), st.integers(1, 4))),
    }
    return table(snapshots, refs, **history)
