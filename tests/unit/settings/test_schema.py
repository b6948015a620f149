from pathlib import Path

import pytest
from pydantic import ValidationError

from lakesweep.model.policy import Ceilings, CleanupPolicy
from lakesweep.model.requests import Requests
from lakesweep.settings.cascade import policy_for
from lakesweep.settings.cleanup import CeilingSettings, CleanupOverride, OrphanCleanupSettings
from lakesweep.settings.schema import PriceSettings, Settings
from lakesweep.settings.tenants import DatasetSettings, TenantSettings
from lakesweep.settings.values import Group
from lakesweep.storage.s3.settings import S3Settings

SEED = {
    "enabled": False,
    "grace_period_hours": 24,
    "cleanup_interval_hours": 24,
    "batch_size": 1000,
    "max_concurrent_deletions": 10,
    "dry_run": True,
    "revalidate_before_delete": True,
    "max_snapshot_age_hours": 720,
}


GROUPS = [group for group in Group.__subclasses__() if not group.__name__.endswith("Override")]
"""Every section; an override repeats keys that are documented already."""


def test_the_defaults_are_the_documented_ones():
    assert {key: getattr(OrphanCleanupSettings(), key) for key in SEED} == SEED


def test_the_ceilings_are_the_policy_s():
    assert CeilingSettings().model_dump() == {
        name: getattr(Ceilings(), name) for name in ("files", "bytes", "share", "share_min_files")
    }


def test_the_default_settings_give_the_default_policy():
    assert policy_for(Settings()) == CleanupPolicy()


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.__name__)
def test_every_setting_says_what_it_does(group):
    assert group.__doc__
    assert all(info.description for info in group.model_fields.values())


def test_every_group_is_judged():
    assert {Settings, TenantSettings, DatasetSettings, CeilingSettings, S3Settings} <= set(GROUPS)


@pytest.mark.parametrize(
    ("whole", "override"),
    [(OrphanCleanupSettings, CleanupOverride), (CeilingSettings, type(CleanupOverride().ceilings))],
)
def test_every_key_can_be_overridden_and_no_other(whole, override):
    assert set(override.model_fields) == set(whole.model_fields)


@pytest.mark.parametrize("name", ["XDG_STATE_HOME", "HOME"])
def test_the_data_directory_is_the_user_s_state_directory(name, monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv(name, str(tmp_path))
    below = "lakesweep" if name == "XDG_STATE_HOME" else ".local/state/lakesweep"
    settings = Settings()
    assert settings.service.data_dir == tmp_path / below
    assert settings.artifacts.raw == f"file://{tmp_path}/{below}/artifacts"
    assert settings.state_url == f"sqlite:///{tmp_path}/{below}/state.db"


def test_a_relative_xdg_directory_is_ignored(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Settings().service.data_dir == tmp_path / ".local/state/lakesweep"


def test_a_tilde_is_the_home_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Settings.model_validate({"service": {"data_dir": "~/x"}}).service.data_dir == Path(tmp_path / "x")


def test_catalog_properties_may_be_dotted_numbers_or_truths():
    dataset = DatasetSettings.model_validate(
        {"id": "d", "format": "iceberg", "catalog": {"s3": {"path-style-access": True, "a": {"b": 1.5}}, "n": 3}}
    )
    assert dataset.catalog == {"s3.path-style-access": "true", "s3.a.b": "1.5", "n": "3"}


def test_a_printed_tree_holds_no_secret():
    settings = Settings.model_validate(
        {
            "state": {"url": "postgresql://u:hush@h/d"},
            "tenants": [
                {
                    "id": "a",
                    "root": "s3://b",
                    "datasets": [{"id": "d", "format": "iceberg", "catalog": {"token": "hush"}}],
                }
            ],
        }
    )
    assert "hush" not in repr(settings)


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("orphan_cleanup", "grace_period_hours", float("nan")),
        ("orphan_cleanup", "grace_period_hours", float("inf")),
        ("orphan_cleanup", "grace_period_hours", -1),
        ("orphan_cleanup", "max_snapshot_age_hours", 10**9),
        ("orphan_cleanup", "cleanup_interval_hours", 0),
        ("orphan_cleanup", "min_snapshots_to_keep", 0),
        ("orphan_cleanup", "min_snapshots_to_keep", True),
        ("orphan_cleanup", "batch_size", 10_001),
        ("orphan_cleanup", "batch_size", 1.5),
        ("orphan_cleanup", "on_missing", "ignore"),
        ("service", "data_dir", "relative/place"),
        ("service", "data_dir", "/a/../b"),
        ("service", "artifacts", "not an address"),
        ("state", "url", "mysql://h/d"),
        ("engine", "memory_limit", "lots"),
        ("engine", "kind", "flink"),
        ("admin", "listen", "8484"),
        ("admin", "listen", "host:99999"),
        ("metrics", "listen", "::1:80"),
        ("daemon", "lease_seconds", 1),
        ("logging", "level", "loud"),
    ],
)
def test_a_value_out_of_range_is_an_error(section, key, value):
    with pytest.raises(ValidationError):
        Settings.model_validate({section: {key: value}})


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:80", "[::1]:9464", "0.0.0.0:65535"])
def test_a_place_to_listen_on_is_accepted(listen):
    assert Settings.model_validate({"metrics": {"listen": listen}}).metrics.listen == listen


@pytest.mark.parametrize("name", ["", " a", "a/b", "a*", "a?", "[a]", "..", "a\nb"])
def test_a_name_that_a_target_could_not_spell_is_an_error(name):
    with pytest.raises(ValidationError):
        TenantSettings(id=name, root="s3://b")


def test_hours_may_be_fractions():
    settings = Settings.model_validate({"orphan_cleanup": {"confirm_after_hours": 0.5}})
    assert policy_for(settings).confirm_after.total_seconds() == 1800


def test_a_local_disk_costs_only_what_somebody_has_set_a_price_for():
    everything = Requests(list=1000, get=1000, head=1000, put=1000, delete=1000, bytes_read=10**9)
    usual = PriceSettings()
    assert usual.of_requests(local=True).of(everything) == 0
    assert usual.of_requests(local=False).of(everything) == 0.0108
    priced = PriceSettings(currency="EUR", list_per_1000=2.0)
    assert (priced.of_requests(local=True).of(everything), priced.of_requests(local=True).currency) == (2.0, "EUR")
