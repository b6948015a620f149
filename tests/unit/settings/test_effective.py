"""What is told about a setting is what a run uses, and where it is said to come from is where it must be changed."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakesweep.settings import stores
from lakesweep.settings.cascade import cleanup_for, policy_for
from lakesweep.settings.effective import Level, for_service, for_table
from lakesweep.settings.error_messages import known_keys
from lakesweep.settings.load import load_traced
from lakesweep.settings.schema import Settings

TABLE = ("acme", "prod", "orders")
LEVELS = (Level.GLOBAL, Level.TENANT, Level.DATASET, Level.TABLE)
HUSH = "hush-hush"

hours = st.integers(24, 999).map(float)
counts = st.integers(1, 9999)
cleanups = st.fixed_dictionaries(
    {},
    optional={
        "enabled": st.booleans(),
        "dry_run": st.booleans(),
        "grace_period_hours": hours,
        "allow_short_grace": st.booleans(),
        "cleanup_interval_hours": hours,
        "cron": st.sampled_from(["30 2 * * *", "0 4 * * 1"]),
        "max_snapshot_age_hours": hours,
        "min_snapshots_to_keep": counts,
        "batch_size": counts,
        "max_concurrent_deletions": counts,
        "confirm_after_hours": hours,
        "approval_hours": hours,
        "on_missing": st.sampled_from(["refuse", "report"]),
        "max_clock_skew_minutes": hours,
        "ceilings": st.fixed_dictionaries({}, optional={"files": counts, "share": st.sampled_from([0.1, 0.5, 1.0])}),
    },
)
given_levels = st.tuples(*[cleanups] * 4)


def tree(everywhere=None, tenant=None, dataset=None, table=None, **rest) -> Settings:
    source = {
        "id": "prod",
        "format": "iceberg",
        "catalog": {"type": "rest", "credential": HUSH, "header.x-anything": HUSH},
        "orphan_cleanup": dataset or {},
        "tables": [{"name": "orders", "orphan_cleanup": table or {}}],
    }
    owner = {"id": "acme", "root": "s3://lake/acme", "orphan_cleanup": tenant or {}, "datasets": [source]}
    return Settings.model_validate({"orphan_cleanup": everywhere or {}, "tenants": [owner], **rest})


def nothing_from_the_environment(_key):
    return None


def told(settings, *names):
    rows = for_table(settings, nothing_from_the_environment, *names)
    assert len({row.name for row in rows}) == len(rows)
    return {row.name: row for row in rows}


def plain(group, above):
    """A group as flat names and JSON values."""
    found = {}
    for name, value in group.model_dump(mode="json").items():
        if isinstance(getattr(group, name), dict) or not isinstance(value, dict):
            found[f"{above}.{name}"] = value
        else:
            found |= plain(getattr(group, name), f"{above}.{name}")
    return found


@given(levels=given_levels, names=st.sampled_from([TABLE, ("acme", "prod", "other"), ("acme", "prod"), ("acme",)]))
def test_what_is_shown_is_what_a_run_uses(levels, names):
    settings = tree(*levels)
    rows = told(settings, *names)
    values = {name: row.value for name, row in rows.items()}
    assert plain(cleanup_for(settings, *names), "orphan_cleanup").items() <= values.items()
    policy = policy_for(settings, *names)
    assert values["orphan_cleanup.dry_run"] is policy.dry_run
    assert values["orphan_cleanup.grace_period_hours"] * 3600 == policy.grace_period.total_seconds()
    assert values["orphan_cleanup.ceilings.files"] == policy.ceilings.files


@given(levels=given_levels)
def test_what_a_person_s_execute_does_is_seen_from_the_level_of_dry_run(levels):
    settings = tree(*levels)
    dry_run = told(settings, *TABLE)["orphan_cleanup.dry_run"]
    stays_dry = dry_run.value and dry_run.level not in (Level.DEFAULT, Level.GLOBAL)
    assert policy_for(settings, *TABLE, execute=True).dry_run is stays_dry


def without(levels, name, keep):
    """The levels without one setting, but for the one level that is said to give it."""
    section, _, key = name.removeprefix("orphan_cleanup.").rpartition(".")
    keys = ("cron", "cleanup_interval_hours") if key in ("cron", "cleanup_interval_hours") else (key,)
    left = copy.deepcopy(levels)
    for level, document in zip(LEVELS, left, strict=True):
        for one in keys if level is not keep else ():
            (document.get(section, {}) if section else document).pop(one, None)
    return left


@settings(max_examples=30)  # each example tries every setting
@given(levels=given_levels)
def test_a_value_stays_when_every_other_level_is_silent_about_it(levels):
    rows = told(tree(*levels), *TABLE)
    for name in plain(Settings().orphan_cleanup, "orphan_cleanup"):
        alone = told(tree(*without(levels, name, keep=rows[name].level)), *TABLE)[name]
        assert (alone.value, alone.level) == (rows[name].value, rows[name].level)


def test_the_narrowest_level_that_has_a_say_is_named():
    everywhere = {"grace_period_hours": 30, "dry_run": False, "cron": "30 2 * * *", "ceilings": {"files": 5}}
    rows = told(tree(everywhere, {"grace_period_hours": 40, "dry_run": False}, {"cleanup_interval_hours": 6}), *TABLE)
    levels = {name.removeprefix("orphan_cleanup."): row.level for name, row in rows.items()}
    assert (levels["grace_period_hours"], levels["ceilings.files"]) == (Level.TENANT, Level.GLOBAL)
    assert levels["dry_run"] is Level.GLOBAL, "false has no say below the global level"
    assert levels["cron"] is levels["cleanup_interval_hours"] is Level.DATASET, "one schedule replaces the other"
    assert levels["batch_size"] is levels["ceilings.share"] is Level.DEFAULT
    dry = told(tree(None, {"dry_run": True}, {"dry_run": False}), *TABLE)["orphan_cleanup.dry_run"]
    assert (dry.value, dry.level) == (True, Level.TENANT)


def test_a_tenant_s_s3_and_a_dataset_s_own_keys_are_reported():
    s3 = {"region": "eu", "max_connections": 5}
    owner = {"id": "a", "root": "s3://a", "storage": {"s3": {"region": "us"}}}
    owner["datasets"] = [{"id": "d", "format": "delta", "location": "s3://a/d", "vacuum_mode": "lite"}]
    settings = Settings.model_validate({"storage": {"s3": s3}, "engine": {"kind": "spark"}, "tenants": [owner]})
    rows = told(settings, "a", "d", "t")
    assert (
        plain(stores.for_tenant(settings, "a")["s3"], "storage.s3").items()
        <= {name: row.value for name, row in rows.items()}.items()
    )
    shown = {name: (row.value, row.level) for name, row in rows.items() if row.level is not Level.DEFAULT}
    assert shown == {
        "tenants.datasets.location": ("s3://a/d", Level.DATASET),
        "tenants.datasets.vacuum_mode": ("lite", Level.DATASET),
        "tenants.root": ("s3://a", Level.TENANT),
        "storage.s3.region": ("us", Level.TENANT),
        "storage.s3.max_connections": (5, Level.GLOBAL),
        "engine.kind": ("spark", Level.GLOBAL),
    }


def test_every_setting_is_shown():
    names = {row.name for row in for_service(Settings(), nothing_from_the_environment)} | set(told(tree(), *TABLE))
    sections = {".".join(map(str, key[:-1])) for key in known_keys()}
    keys = {".".join(map(str, key)) for key in known_keys()} - sections - {"tenants"}
    assert len(keys) > 40
    assert keys <= names


def test_the_variable_that_gave_a_value_is_named(write, monkeypatch):
    file = write('[orphan_cleanup]\ndry_run = true\nbatch_size = 5\n[[tenants]]\nid = "b"\nroot = "s3://b"\n')
    monkeypatch.setenv("LAKESWEEP_ORPHAN_CLEANUP__DRY_RUN", "false")
    monkeypatch.setenv("LAKESWEEP_ENGINE", '{"kind": "spark"}')
    monkeypatch.setenv("LAKESWEEP_TENANTS", '[{"id": "a", "root": "s3://a", "orphan_cleanup": {"cron": "0 4 * * 1"}}]')
    rows = {row.name: row for row in for_table(*load_traced(file), "a")}
    variables = {name: (row.level, row.variable) for name, row in rows.items() if row.level is not Level.DEFAULT}
    assert variables == {
        "orphan_cleanup.dry_run": (Level.GLOBAL, "LAKESWEEP_ORPHAN_CLEANUP__DRY_RUN"),
        "orphan_cleanup.batch_size": (Level.GLOBAL, None),
        "orphan_cleanup.cron": (Level.TENANT, "LAKESWEEP_TENANTS"),
        "tenants.root": (Level.TENANT, "LAKESWEEP_TENANTS"),
        "engine.kind": (Level.GLOBAL, "LAKESWEEP_ENGINE"),
    }


def test_no_secret_is_shown():
    spark = {"remote": f"sc://h:1/;x-key={HUSH}", "conf": {"spark.hadoop.fs.s3a.any": HUSH}}
    settings = tree(
        state={"url": f"postgresql://u:a/{HUSH}@h/d"},
        engine={"spark": spark},
        storage={"s3": {"endpoint_url": f"http://u:{HUSH}@h:1"}},
    )
    rows = for_service(settings, nothing_from_the_environment) + list(told(settings, *TABLE).values())
    assert HUSH not in repr(rows)
    assert HUSH not in repr(settings.state) + repr(settings.engine) + repr(settings.tenants)
    values = {row.name: row.value for row in rows}
    hidden = ("state.url", "tenants.datasets.catalog", "engine.spark.remote", "engine.spark.conf")
    assert {name: values[name] for name in hidden} == dict.fromkeys(hidden, "***")
    assert values["storage.s3.endpoint_url"] == "http://***@h:1"


def test_a_setting_without_a_value_hides_nothing():
    values = {row.name: row.value for row in for_service(Settings(), nothing_from_the_environment)}
    assert values["state.url"] is None


@pytest.mark.parametrize("names", [("nobody",), ("nobody", "prod", "orders"), ("acme", "nowhere", "orders")])
def test_names_that_are_not_configured_inherit(names):
    rows = told(tree({"batch_size": 7}, None, {"batch_size": 8}), *names)
    assert (rows["orphan_cleanup.batch_size"].value, rows["orphan_cleanup.batch_size"].level) == (7, Level.GLOBAL)
