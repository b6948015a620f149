from dataclasses import asdict
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesweep.model.errors import SettingsError
from lakesweep.model.policy import Ceilings, CleanupPolicy, Deletion, OnMissing
from lakesweep.settings import stores
from lakesweep.settings.cascade import cleanup_for, policy_for
from lakesweep.settings.schema import Settings

TABLE = ("acme", "prod", "orders")


def settings(everywhere=None, tenant=None, dataset=None, table=None, **rest) -> Settings:
    return Settings.model_validate(
        {
            "orphan_cleanup": everywhere or {},
            "tenants": [
                {
                    "id": "acme",
                    "root": "s3://lake/acme",
                    "orphan_cleanup": tenant or {},
                    "datasets": [
                        {
                            "id": "prod",
                            "format": "iceberg",
                            "catalog": {"type": "rest"},
                            "orphan_cleanup": dataset or {},
                            "tables": [{"name": "orders", "orphan_cleanup": table or {}}],
                        }
                    ],
                }
            ],
            **rest,
        }
    )


def dry(value):
    return {} if value is None else {"dry_run": value}


def test_the_narrowest_value_wins():
    levels = [{"grace_period_hours": hours} for hours in (30, 40, 50, 60)]
    cascade = settings(*levels)
    assert policy_for(cascade).grace_period == timedelta(hours=30)
    assert policy_for(cascade, "acme").grace_period == timedelta(hours=40)
    assert policy_for(cascade, "acme", "prod").grace_period == timedelta(hours=50)
    assert policy_for(cascade, *TABLE).grace_period == timedelta(hours=60)
    assert policy_for(cascade, "acme", "prod", "other").grace_period == timedelta(hours=50)
    assert policy_for(cascade, "nobody", "prod", "orders").grace_period == timedelta(hours=30)


def test_ceilings_cascade_key_by_key():
    cascade = settings({"ceilings": {"files": 5, "share": 0.1}}, {"ceilings": {"files": 7}})
    ceilings = policy_for(cascade, *TABLE).ceilings
    assert (ceilings.files, ceilings.share, ceilings.share_min_files) == (7, 0.1, 1000)


def test_enabled_and_interval_cascade_too():
    effective = cleanup_for(settings({"enabled": True}, {"cleanup_interval_hours": 6}, {"enabled": False}), *TABLE)
    assert (effective.enabled, effective.cleanup_interval_hours) == (False, 6)


@given(levels=st.tuples(st.booleans(), *[st.sampled_from([None, True, False])] * 3))
def test_the_safer_dry_run_wins(levels):
    everywhere, *narrower = levels
    cascade = settings(dry(everywhere), *[dry(level) for level in narrower])
    assert policy_for(cascade, *TABLE).dry_run is (everywhere or True in narrower)


@given(levels=st.tuples(*[st.sampled_from([None, "delete", "trash"])] * 4))
def test_trash_at_any_level_wins_over_delete(levels):
    cascade = settings(*[{"deletion": level} if level else {} for level in levels])
    assert policy_for(cascade, *TABLE).deletion == ("trash" if "trash" in levels else "delete")


@given(levels=st.tuples(st.booleans(), *[st.sampled_from([None, True, False])] * 3))
def test_execute_stands_over_the_global_dry_run_and_over_no_other(levels):
    everywhere, *narrower = levels
    cascade = settings(dry(everywhere), *[dry(level) for level in narrower])
    assert policy_for(cascade, *TABLE, execute=True).dry_run is (True in narrower)


@given(levels=st.tuples(*[st.sampled_from([None, True, False])] * 4))
def test_without_execute_the_command_line_never_deletes(levels):
    assert policy_for(settings(*[dry(level) for level in levels]), *TABLE, execute=False).dry_run is True


def test_executing_without_revalidation_is_refused():
    cascade = settings({"revalidate_before_delete": False})
    assert policy_for(cascade, *TABLE).dry_run is True
    with pytest.raises(SettingsError, match="revalidate_before_delete = false is allowed only in a dry run"):
        policy_for(cascade, *TABLE, execute=True)


def test_every_value_reaches_the_policy():
    """A rule that `policy_for` leaves out keeps its default, whatever an operator writes."""
    given = {
        "dry_run": False,
        "grace_period_hours": 1,
        "allow_short_grace": True,
        "max_snapshot_age_hours": 2,
        "min_snapshots_to_keep": 3,
        "batch_size": 4,
        "max_concurrent_deletions": 5,
        "confirm_after_hours": 6,
        "listing_interval_hours": 9,
        "on_missing": "report",
        "max_clock_skew_minutes": 7,
        "stream_state_hours": 8,
        "deletion": "trash",
        "ceilings": {"files": 10, "bytes": 11, "share": 0.1, "share_min_files": 12},
    }
    policy = policy_for(settings(table=given), *TABLE, execute=True)
    assert policy == CleanupPolicy(
        dry_run=False,
        grace_period=timedelta(hours=1),
        allow_short_grace=True,
        max_snapshot_age=timedelta(hours=2),
        min_snapshots_to_keep=3,
        batch_size=4,
        max_concurrent_deletions=5,
        confirm_after=timedelta(hours=6),
        listing_interval=timedelta(hours=9),
        on_missing=OnMissing.REPORT,
        max_clock_skew=timedelta(minutes=7),
        stream_state=timedelta(hours=8),
        deletion=Deletion.TRASH,
        ceilings=Ceilings(files=10, bytes=11, share=0.1, share_min_files=12),
    )
    values, defaults = asdict(policy), asdict(CleanupPolicy())
    assert not [name for name, default in defaults.items() if values[name] == default]


def test_a_tenant_s_s3_inherits_what_it_does_not_give():
    cascade = Settings.model_validate(
        {
            "storage": {"s3": {"region": "eu", "path_style": True}},
            "tenants": [{"id": "a", "root": "s3://a", "storage": {"s3": {"region": "us", "path_style": False}}}],
        }
    )
    assert (stores.for_tenant(cascade, "a")["s3"].region, stores.for_tenant(cascade, "a")["s3"].path_style) == (
        "us",
        False,
    )
    assert (stores.for_tenant(cascade, "b")["s3"].region, stores.for_tenant(cascade)["s3"].path_style) == ("eu", True)
    assert stores.for_tenant(cascade, "a")["s3"].max_connections == 64


def test_an_override_may_say_nothing_of_a_key_that_has_bounds():
    """As settings are that were written out and read again."""
    tenant = {"id": "a", "root": "s3://lake/a", "storage": {"s3": {"max_connections": None, "region": "us"}}}
    settings = Settings.model_validate({"tenants": [tenant]})
    assert stores.for_tenant(settings, "a")["s3"].max_connections == 64
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        Settings.model_validate({"tenants": [{**tenant, "storage": {"s3": {"max_connections": 0}}}]})
