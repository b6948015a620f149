"""Where the trash may be: in the tenant's store, and where no table is looked for."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from lakesweep.model.errors import Refused
from lakesweep.model.location import Location
from lakesweep.model.trash import RunTrash
from lakesweep.settings.cascade import trash_for
from lakesweep.settings.schema import Settings

ROOT = Location.parse("s3://lake/acme")


def settings(trash=None, *, everywhere=None, dataset=None):
    tenant = {
        "id": "acme",
        "root": "s3://lake/acme",
        "orphan_cleanup": {"trash": trash},
        "datasets": [
            {
                "id": "d",
                "format": "delta",
                "location": "s3://lake/acme/.tables",
                "orphan_cleanup": {"trash": dataset},
            }
        ],
    }
    other = [] if everywhere else [{"id": "globex", "root": "s3://lake/globex"}]
    return Settings.model_validate({"orphan_cleanup": {"trash": everywhere}, "tenants": [tenant, *other]})


def test_the_default_trash_is_a_hidden_directory_of_the_root():
    assert trash_for(settings(), ROOT, "acme", "d", "t").raw == "s3://lake/acme/.lakesweep-trash"


@pytest.mark.parametrize("place", ["s3://lake/acme/_gone/x", "s3://lake/acme/x/.trash", "s3://trash/acme"])
def test_a_trash_may_be_hidden_in_the_root_or_elsewhere_in_its_store(place):
    assert trash_for(settings(place), ROOT, "acme", "d", "t").raw == place
    assert trash_for(settings(everywhere=place), ROOT, "acme", "d", "t").raw == place
    assert trash_for(settings(dataset=place), ROOT, "acme", "d", "t").raw == place
    assert trash_for(settings(dataset=place), ROOT, "acme").raw == "s3://lake/acme/.lakesweep-trash"


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("/mnt/trash", "the same store"),
        ("s3://lake/globex/.trash", "tenant 'globex'"),
        ("s3://lake", "tenant 'globex'"),
        ("s3://lake/acme", "dataset 'd'"),
        ("s3://lake/acme/.tables", "dataset 'd'"),
        ("s3://lake/acme/trash", "must begin with . or _"),
        ("s3://lake//acme/.trash", "spell it like the root"),
    ],
)
def test_a_trash_where_tables_are_looked_for_is_an_error(place, why):
    for given in ({"trash": place}, {"dataset": place}):
        with pytest.raises(ValidationError, match=why):
            settings(**given)


@pytest.mark.parametrize("theirs", ["s3://trash/all", "s3://trash/all/b", "s3://trash"])
def test_the_trash_of_a_tenant_is_its_own(theirs):
    """`lakesweep trash` would count what another tenant has in it."""
    given = [("a", "s3://trash/all"), ("b", theirs)]
    tenants = [{"id": name, "root": f"s3://lake/{name}", "orphan_cleanup": {"trash": at}} for name, at in given]
    with pytest.raises(ValidationError, match=r"overlap the trash of tenant 'b'.*give each tenant its own"):
        Settings.model_validate({"tenants": tenants})
    tenants[1]["orphan_cleanup"]["trash"] = "s3://trash/b"
    Settings.model_validate({"tenants": tenants})


def test_two_tenants_do_not_share_a_trash():
    with pytest.raises(ValidationError, match="give each tenant its own"):
        Settings.model_validate(
            {
                "orphan_cleanup": {"trash": "s3://trash/all"},
                "tenants": [{"id": "a", "root": "s3://lake/a"}, {"id": "b", "root": "s3://lake/b"}],
            }
        )


@pytest.mark.parametrize("key", ["t/x", "t//x", "/x", "t/%20 #?", "t/..x"])
def test_an_address_in_the_trash_leads_back_byte_for_byte(key):
    trash = RunTrash(place=Location.parse("s3://trash/a"), root=ROOT, run_id="r1")
    path = f"s3://lake/acme/{key}"
    assert trash.address(path) == f"s3://trash/a/r1/{key}"
    assert trash.origin(trash.address(path)) == path


@pytest.mark.parametrize("path", ["s3://lake/other/x", "s3://lake/acme", "s3://lake/acme/../x", "s3://b/acme/x"])
def test_nothing_outside_the_root_has_an_address_in_the_trash(path):
    trash = RunTrash(place=Location.parse("s3://trash/a"), root=ROOT, run_id="r1")
    with pytest.raises(Refused, match="outside the tenant's root"):
        trash.address(path)
    with pytest.raises(Refused, match="not in the trash"):
        trash.origin(path)


def test_a_run_is_remembered_for_longer_than_its_files_stay_in_the_trash():
    """A run that is forgotten cannot be taken back, and nobody would know whose its files are."""
    rules = {"orphan_cleanup": {"deletion": "trash", "trash_hours": 24 * 90}}
    with pytest.raises(ValidationError, match="more than the 2160 hours of trash_hours"):
        Settings.model_validate(rules)
    Settings.model_validate({**rules, "service": {"keep_runs_days": 91}})
    Settings.model_validate({"orphan_cleanup": {"trash_hours": 24 * 90}})
