"""Which rules hold for a ghost, which no dataset has: of all levels of its tenant the safest."""

from datetime import timedelta

import pytest

from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy, Deletion
from lakesweep.settings.cascade import ghost_grace, ghost_policy
from lakesweep.settings.schema import Settings


def settings(cleanup=None, tenant=None, dataset=None, table=None, dataset_id="d", **place):
    return Settings.model_validate(
        {
            "orphan_cleanup": cleanup or {},
            "tenants": [
                {
                    "id": "acme",
                    "root": "/lake/acme",
                    "orphan_cleanup": tenant or {},
                    "datasets": [
                        {
                            "id": dataset_id,
                            "format": "delta",
                            "location": "/lake/acme/tables",
                            **place,
                            "orphan_cleanup": dataset or {},
                            "tables": [{"name": "t", "orphan_cleanup": table or {}}],
                        }
                    ],
                }
            ],
        }
    )


@pytest.mark.parametrize(
    ("levels", "hours"),
    [
        ({}, 720),
        ({"tenant": {"ghost_grace_hours": 48}}, 720),
        ({"cleanup": {"ghost_grace_hours": 48}}, 48),
        ({"cleanup": {"ghost_grace_hours": 48}, "tenant": {"ghost_grace_hours": 100}}, 100),
        ({"cleanup": {"ghost_grace_hours": 48}, "dataset": {"ghost_grace_hours": 1000}}, 1000),
        ({"table": {"ghost_grace_hours": 1001}}, 1001),
    ],
)
def test_the_longest_grace_of_any_level_holds(levels, hours):
    assert ghost_grace(settings(**levels), "acme") == timedelta(hours=hours)


def test_a_short_grace_needs_the_operators_consent():
    with pytest.raises(ValueError, match="ghost_grace_hours"):
        settings(cleanup={"ghost_grace_hours": 1})
    short = {"ghost_grace_hours": 1, "allow_short_grace": True}
    assert ghost_grace(settings(cleanup=short), "acme") == timedelta(hours=1)


def test_no_dataset_may_have_the_name_of_ghosts():
    with pytest.raises(ValueError, match="reserved"):
        settings(dataset_id="~ghosts")


@pytest.mark.parametrize("level", ["tenant", "dataset", "table"])
def test_trash_at_any_level_holds_for_ghosts(level):
    place = Location.parse("/lake/acme/old/t")
    found = ghost_policy(
        settings(**{level: {"deletion": "trash"}}), CleanupPolicy(dry_run=False), "acme", place, known=True
    )
    assert found.deletion is Deletion.TRASH
    assert ghost_policy(settings(), CleanupPolicy(), "acme", place, known=True).deletion is Deletion.DELETE


@pytest.mark.parametrize(
    ("levels", "place", "dry"),
    [
        ({}, "/lake/acme/old/t", False),
        ({"tenant": {"dry_run": True}}, "/lake/acme/old/t", True),
        ({"dataset": {"dry_run": True}}, "/lake/acme/old/t", False),
        ({"dataset": {"dry_run": True}}, "/lake/acme/tables/gone", True),
    ],
)
def test_the_dry_run_of_a_dataset_that_may_lie_there_holds(levels, place, dry):
    policy = CleanupPolicy(dry_run=False)
    assert ghost_policy(settings(**levels), policy, "acme", Location.parse(place), known=True).dry_run == dry
