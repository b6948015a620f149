"""What must hold between settings, and that each fault is told at the key a person would mend."""

import pytest
from pydantic import ValidationError

from lakesweep.settings.schema import Settings


def faults(document: dict) -> dict[str, str]:
    try:
        Settings.model_validate(document)
    except ValidationError as error:
        return {".".join(map(str, one["loc"])): one["msg"] for one in error.errors()}
    return {}


def tenant(*datasets: dict, **given) -> dict:
    return {"id": "acme", "root": "s3://lake/acme", "datasets": list(datasets), **given}


ICEBERG = {"id": "d", "format": "iceberg", "catalog": {"type": "rest"}}
DELTA = {"id": "d", "format": "delta", "location": "s3://lake/acme/bronze"}
PAIMON = {"id": "d", "format": "paimon", "warehouse": "s3://lake/acme/p"}


@pytest.mark.parametrize("dataset", [ICEBERG, DELTA, PAIMON], ids=lambda one: one["format"])
def test_a_complete_dataset_has_no_fault(dataset):
    assert faults({"tenants": [tenant(dataset)]}) == {}


@pytest.mark.parametrize(
    ("dataset", "key", "words"),
    [
        ({"id": "d", "format": "iceberg"}, "catalog", "is required when format = 'iceberg'"),
        ({"id": "d", "format": "paimon"}, "warehouse", "is required when format = 'paimon'"),
        ({"id": "d", "format": "delta"}, "location", "is required when format = 'delta'"),
        ({**ICEBERG, "warehouse": "s3://lake/acme/w"}, "warehouse", "goes inside catalog"),
        ({**ICEBERG, "location": "s3://lake/acme/w"}, "location", "which uses catalog and namespace"),
        ({**DELTA, "catalog": {}}, "catalog", "does not belong to format = 'delta', which uses location"),
        ({**DELTA, "database": "x"}, "database", "which uses location"),
        ({**PAIMON, "namespace": "x"}, "namespace", "which uses warehouse and database"),
    ],
)
def test_a_format_takes_its_own_keys_only(dataset, key, words):
    assert words in faults({"tenants": [tenant(dataset)]})[f"tenants.0.datasets.0.{key}"]


def test_no_tenant_takes_the_name_of_bare_locations():
    told = faults({"tenants": [tenant(DELTA, id="location")]})
    assert "location/FORMAT/ADDRESS" in told["tenants.0.id"]
    assert faults({"tenants": [tenant(DELTA, id="locations")]}) == {}


@pytest.mark.parametrize("place", ["s3://lake/acme2/x", "s3://other/acme/x", "/acme/x", "s3://lake/"])
def test_a_dataset_outside_its_tenant_s_root_is_an_error(place):
    assert (
        "inside the tenant's root"
        in faults({"tenants": [tenant({**DELTA, "location": place})]})["tenants.0.datasets.0.location"]
    )


@pytest.mark.parametrize("place", ["s3://lake/acme", "s3a://lake/acme/", "s3n://lake/acme/x"])
def test_a_dataset_at_or_below_the_root_is_right(place):
    assert faults({"tenants": [tenant({**DELTA, "location": place})]}) == {}


@pytest.mark.parametrize("root", ["s3://lake/acme", "s3a://lake/acme/x", "s3://lake", "s3://lake//acme/"])
def test_roots_of_two_tenants_must_not_overlap(root):
    found = faults({"tenants": [tenant(), {"id": "other", "root": root}]})
    assert "must not overlap the root of tenant 'acme'" in found["tenants.1.root"]


def test_roots_that_only_share_letters_do_not_overlap():
    assert faults({"tenants": [tenant(), {"id": "other", "root": "s3://lake/acme2"}]}) == {}


def test_names_are_unique_at_every_level():
    twice = {**ICEBERG, "tables": [{"name": "t"}, {"name": "t"}]}
    found = faults({"tenants": [tenant(twice, ICEBERG), {"id": "acme", "root": "s3://b"}]})
    assert set(found) == {"tenants.1.id", "tenants.0.datasets.1.id", "tenants.0.datasets.0.tables.1.name"}


def test_a_short_grace_period_needs_explicit_consent():
    assert (
        "allow_short_grace"
        in faults({"orphan_cleanup": {"grace_period_hours": 23.9}})["orphan_cleanup.grace_period_hours"]
    )
    assert faults({"orphan_cleanup": {"grace_period_hours": 1, "allow_short_grace": True}}) == {}


def test_a_short_grace_period_is_found_where_it_is_given():
    dataset = {**ICEBERG, "tables": [{"name": "t", "orphan_cleanup": {"grace_period_hours": 1}}]}
    assert set(faults({"tenants": [tenant(dataset)]})) == {
        "tenants.0.datasets.0.tables.0.orphan_cleanup.grace_period_hours"
    }


def test_withdrawing_consent_below_is_found_too():
    document = {
        "orphan_cleanup": {"grace_period_hours": 1, "allow_short_grace": True},
        "tenants": [tenant(ICEBERG, orphan_cleanup={"allow_short_grace": False})],
    }
    assert set(faults(document)) == {"tenants.0.orphan_cleanup.grace_period_hours"}


def test_an_inherited_fault_is_reported_once():
    document = {"orphan_cleanup": {"grace_period_hours": 1}, "tenants": [tenant(ICEBERG)]}
    assert set(faults(document)) == {"orphan_cleanup.grace_period_hours"}


def test_the_shortest_interval_is_not_above_the_longest():
    adaptive = {"cadence": "adaptive", "min_interval_hours": 10, "max_interval_hours": 1}
    assert faults({"orphan_cleanup": adaptive}) == {
        "orphan_cleanup.min_interval_hours": "must not be more than max_interval_hours = 1"
    }
    assert faults({"orphan_cleanup": {**adaptive, "max_interval_hours": 10}}) == {}
    # A fixed cadence has no longest interval, and hints keep to the shortest.
    assert faults({"orphan_cleanup": {"min_interval_hours": 200}}) == {}


@pytest.mark.parametrize(
    ("wide", "narrow", "key", "words"),
    [
        (
            {"cadence": "adaptive", "min_interval_hours": 10},
            {"max_interval_hours": 2},
            "max",
            "less than min_interval_hours = 10",
        ),
        (
            {"cadence": "adaptive", "max_interval_hours": 2},
            {"min_interval_hours": 10},
            "min",
            "more than max_interval_hours = 2",
        ),
        ({"min_interval_hours": 200}, {"cadence": "adaptive"}, "max", "less than min_interval_hours = 200"),
    ],
)
def test_intervals_of_two_levels_are_compared_at_the_narrower_one(wide, narrow, key, words):
    """Once, at the level that brings them together."""
    dataset = {**ICEBERG, "tables": [{"name": "t", "orphan_cleanup": narrow}]}
    found = faults({"orphan_cleanup": wide, "tenants": [tenant(dataset)]})
    assert list(found) == [f"tenants.0.datasets.0.tables.0.orphan_cleanup.{key}_interval_hours"]
    assert words in next(iter(found.values()))
    fixed = faults({"orphan_cleanup": wide, "tenants": [tenant(dataset, orphan_cleanup={"cadence": "fixed"})]})
    assert bool(fixed) is ("cadence" in narrow)


def test_deleting_without_revalidation_is_an_error():
    found = faults({"orphan_cleanup": {"revalidate_before_delete": False, "dry_run": False}})
    assert "must be true unless dry_run = true" in found["orphan_cleanup.revalidate_before_delete"]
    assert faults({"orphan_cleanup": {"revalidate_before_delete": False}}) == {}


def test_a_tenant_s_dry_run_makes_it_right_for_that_tenant():
    document = {
        "orphan_cleanup": {"dry_run": False},
        "tenants": [tenant(orphan_cleanup={"dry_run": True, "revalidate_before_delete": False})],
    }
    assert faults(document) == {}


@pytest.mark.parametrize("key", ["data_dir", "artifacts"])
def test_our_own_files_are_never_below_a_tenant_s_root(key):
    document = {"service": {key: "/lake/acme/own"}, "tenants": [{"id": "acme", "root": "/lake/acme"}]}
    assert "outside the root of tenant 'acme'" in faults(document)[f"service.{key}"]


@pytest.mark.parametrize("scratch", ["s3://lake", "s3a://lake/acme/tmp", "s3://lake/acme"])
def test_scratch_never_overlaps_a_tenant_s_root(scratch):
    for spark in ({"scratch": scratch}, {"conf": {"spark.lakesweep.scratch": scratch}}):
        document = {"engine": {"spark": spark}, "tenants": [{"id": "acme", "root": "s3://lake/acme"}]}
        assert "overlap the root of tenant 'acme'" in faults(document)["engine.spark.scratch"]


@pytest.mark.parametrize(
    ("scratch", "remote", "right"),
    [
        ("s3://ops/x", "sc://there", True),
        ("/mnt/x", "sc://there", True),
        ("hdfs://n/x", "sc://there", False),
        ("hdfs://n/x", None, True),
        ("dbfs:/x", None, True),
        ("s3://ops/../x", None, False),
        ("here", None, False),
    ],
)
def test_scratch_is_a_place_that_can_be_written_and_cleared(scratch, remote, right):
    document = {"engine": {"spark": {"scratch": scratch, "remote": remote}}}
    assert ("engine.spark.scratch" not in faults(document)) is right


def test_a_root_inside_the_data_directory_is_right():
    document = {"service": {"data_dir": "/lake"}, "tenants": [{"id": "acme", "root": "/lake/acme"}]}
    assert faults(document) == {}


@pytest.mark.parametrize("root", ["lake", "s3:/lake", "s3://lake/a/../b", "file://host/x"])
def test_a_root_must_be_an_address(root):
    assert "must" in faults({"tenants": [{"id": "acme", "root": root}]})["tenants.0.root"]
