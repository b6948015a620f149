import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from lakesweep.model.errors import SettingsError
from lakesweep.settings.load import load
from lakesweep.settings.schema import Settings


def faults(path: Path | None = None) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(path)
    return caught.value.faults


def test_without_a_file_there_are_the_defaults():
    assert load().orphan_cleanup.dry_run is True
    assert load().tenants == ()


def test_the_environment_stands_over_the_file(write, monkeypatch):
    path = write("[orphan_cleanup]\ngrace_period_hours = 48\nbatch_size = 7\n")
    monkeypatch.setenv("LAKESWEEP_ORPHAN_CLEANUP__GRACE_PERIOD_HOURS", "72.5")
    monkeypatch.setenv("LAKESWEEP_ORPHAN_CLEANUP__DRY_RUN", "false")
    cleanup = load(path).orphan_cleanup
    assert (cleanup.grace_period_hours, cleanup.batch_size, cleanup.dry_run) == (72.5, 7, False)


def test_a_variable_names_the_file_and_the_option_stands_over_it(write, monkeypatch, tmp_path):
    other = tmp_path / "other.toml"
    other.write_text("[daemon]\nmax_tables = 9\n")
    monkeypatch.setenv("LAKESWEEP_CONFIG", str(other))
    assert load().daemon.max_tables == 9
    assert load(write("[daemon]\nmax_tables = 5\n")).daemon.max_tables == 5


def test_sections_arrays_and_tables_come_as_json(monkeypatch):
    monkeypatch.setenv("LAKESWEEP_TENANTS", '[{"id": "acme", "root": "s3://lake"}]')
    monkeypatch.setenv("LAKESWEEP_ENGINE__SPARK__CONF", '{"spark.executor.memory": "4g"}')
    monkeypatch.setenv("LAKESWEEP_STORAGE", '{"s3": {"region": "eu"}}')
    monkeypatch.setenv("LAKESWEEP_STORAGE__S3__PATH_STYLE", "true")
    settings = load()
    assert settings.tenants[0].id == "acme"
    assert settings.engine.spark.conf == {"spark.executor.memory": "4g"}
    assert (settings.storage.s3.region, settings.storage.s3.path_style) == ("eu", True)


def test_an_empty_variable_is_no_setting(write, monkeypatch):
    monkeypatch.setenv("LAKESWEEP_STORAGE__S3__REGION", "")
    assert load(write('[storage.s3]\nregion = "eu"\n')).storage.s3.region == "eu"


def test_all_faults_are_reported_at_once_with_key_value_and_what_is_allowed(write):
    path = write("""
        [orphan_cleanup]
        batch_size = "many"
        on_missing = "perhaps"
        grace_period_hours = 2
        ceilings = { share = 2 }
        [[tenants]]
        id = "acme"
        root = "s3://lake/acme"
        [[tenants.datasets]]
        id = "prod"
        format = "icebrg"
        [[tenants.datasets]]
        id = "bronze"
        format = "delta"
        location = "s3://lake/other"
        [[tenants]]
        root = "s3://b"
    """)
    expected = """
        orphan_cleanup.batch_size = "many": must be a whole number
        orphan_cleanup.on_missing = "perhaps": must be 'refuse' or 'report'
        orphan_cleanup.ceilings.share = 2: must be less than or equal to 1
        tenants[acme].datasets[prod].format = "icebrg": must be 'iceberg', 'paimon' or 'delta'
        tenants[#2].id: is required
        orphan_cleanup.grace_period_hours = 2.0: must be at least 24, unless allow_short_grace = true
        tenants[acme].datasets[bronze].location = "s3://lake/other": must be inside the tenant's root s3://lake/acme
    """
    lines = [line.strip() for line in expected.strip().splitlines()]
    found = faults(path)
    assert len(found) == len(lines)
    assert all(one.startswith(f"{path}: {line}") for one, line in zip(found, lines, strict=True))


def test_a_wrong_value_is_not_reported_again_as_missing(write):
    path = write(
        '[[tenants]]\nid = "a"\nroot = "s3://b"\n[[tenants.datasets]]\nid = "d"\nformat = "delta"\nlocation = 5\n'
    )
    assert faults(path) == [f"{path}: tenants[a].datasets[d].location = 5: must be a string in quotes"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[orphan_cleanup]\ndryrun = true", "orphan_cleanup.dryrun: unknown key, did you mean 'dry_run'?"),
        ("dry_run = true", "dry_run: unknown key here, did you mean 'orphan_cleanup.dry_run'?"),
        ("[logging]\nzzz = 1", "logging.zzz: unknown key, allowed here: format, level"),
        ("[orphan_clean]\nx = 1", "orphan_clean: unknown key, did you mean 'orphan_cleanup'?"),
        (
            '[[tenants]]\nid = "a"\nroot = "/x"\norphan_cleanup = { dryrun = true }',
            "tenants[a].orphan_cleanup.dryrun: unknown key, did you mean 'dry_run'?",
        ),
        ('[tenants]\nid = "a"', "tenants: must be an array of tables, written [[…]]"),
        ('[notify]\nevents = "done"', 'notify.events = "done": must be an array, written ["…"]'),
        ("orphan_cleanup = 5", "orphan_cleanup = 5: must be a table"),
        (
            '[[tenants]]\nid = "a"\nroot = "gs://lake"',
            'tenants[a].root = "gs://lake": must be an address s3://…, file://…',
        ),
        ('[storage.s3]\nendpoint_url = "minio"', "must be of the form http://host:port or https://host"),
    ],
)
def test_a_slip_is_an_error_that_says_what_was_meant(write, text, told):
    found = faults(write(text))
    assert len(found) == 1
    assert told in found[0]


def test_a_syntax_error_names_file_and_line(write):
    path = write("[orphan_cleanup]\ndry_run = perhaps\n")
    (told,) = faults(path)
    assert told.startswith(f"{path}: not valid TOML: ")
    assert "line 2" in told


def test_a_file_that_cannot_be_read_is_reported(tmp_path):
    assert faults(tmp_path / "none.toml") == [f"cannot read {tmp_path / 'none.toml'}: No such file or directory"]
    assert faults(tmp_path) == [f"cannot read {tmp_path}: Is a directory"]
    (tmp_path / "bytes.toml").write_bytes(b"a = '\xff'")
    assert "not a UTF-8 text" in faults(tmp_path / "bytes.toml")[0]


def test_a_fault_of_the_environment_names_the_variable(write, monkeypatch):
    monkeypatch.setenv("LAKESWEEP_ORPHAN_CLEANUP__DRY_RUN", "perhaps")
    monkeypatch.setenv("LAKESWEEP_ORPHAN_CLEANUP__DRYRUN", "true")
    monkeypatch.setenv("LAKESWEEP_ORPHAN_CLEANUP_BATCH_SIZE", "1")
    monkeypatch.setenv("LAKESWEEP_DRY_RUN", "true")
    monkeypatch.setenv("LAKESWEEP_ENGINE__SPARK__CONF", "{not json")
    monkeypatch.setenv("LAKESWEEP_TENANTS", '[{"id": "a", "root": "x"}]')
    expected = """
        LAKESWEEP_ORPHAN_CLEANUP_BATCH_SIZE: unknown setting, did you mean LAKESWEEP_ORPHAN_CLEANUP__BATCH_SIZE?
        LAKESWEEP_DRY_RUN: unknown setting, did you mean LAKESWEEP_ORPHAN_CLEANUP__DRY_RUN?
        LAKESWEEP_ENGINE__SPARK__CONF: must be JSON: Expecting property name
        LAKESWEEP_ORPHAN_CLEANUP__DRY_RUN: orphan_cleanup.dry_run = "perhaps": must be true or false
        LAKESWEEP_ORPHAN_CLEANUP__DRYRUN: orphan_cleanup.dryrun: unknown key, did you mean 'dry_run'?
        LAKESWEEP_TENANTS: tenants[a].root = "x": must be an address
    """
    lines = [line.strip() for line in expected.strip().splitlines()]
    found = faults(write("[orphan_cleanup]\ngrace_period_hours = 48\n"))
    assert len(found) == len(lines)
    assert all(one.startswith(f"environment variable {line}") for one, line in zip(found, lines, strict=True))


@pytest.mark.parametrize(
    "name",
    [
        "LAKESWEEP_SERVICE_HOST",
        "LAKESWEEP_SERVICE_PORT",
        "LAKESWEEP_SERVICE_PORT_HTTP",
        "LAKESWEEP_PORT",
        "LAKESWEEP_PORT_8484_TCP",
        "LAKESWEEP_PORT_8484_TCP_ADDR",
        "LAKESWEEP_METRICS_SERVICE_HOST",
    ],
)
def test_what_kubernetes_sets_for_a_service_of_our_name_is_left_alone(name, monkeypatch):
    monkeypatch.setenv(name, "tcp://10.0.0.1:8484")
    assert load().service.artifacts is None


def test_no_fault_shows_a_secret(write, monkeypatch):
    monkeypatch.setenv("LAKESWEEP_STATE__URL", "mysql://user:hush@host/db")
    path = write("""
        [[tenants]]
        id = "a"
        root = "s3://b"
        [[tenants.datasets]]
        id = "one"
        format = "iceberg"
        catalog = "hush"
        [[tenants.datasets]]
        id = "two"
        format = "delta"
        location = "s3://b/x"
        catalog = { token = "hush", credential = ["hush"], uri = "http://u:hush@h" }
    """)
    told = "\n".join(faults(path))
    assert "hush" not in told
    assert "tenants[a].datasets[one].catalog = ***: must be a table" in told
    assert "tenants[a].datasets[two].catalog" in told


KEYS = ["id", "root", "datasets", "tables", "name", "orphan_cleanup", "dry_run", "catalog", "format", "s3"]
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, min_size=1, max_size=4)
    ),
    max_leaves=12,
)


@hypothesis_settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(section=st.sampled_from(["tenants", "orphan_cleanup", "storage", "service"]), value=values)
def test_nonsense_is_reported_once_and_never_crashes(section, value, monkeypatch):
    monkeypatch.setenv(f"LAKESWEEP_{section.upper()}", json.dumps(value))
    try:
        found = load()
    except SettingsError as error:
        found = error.faults
    assert found
    assert isinstance(found, Settings) or len(set(found)) == len(found)
