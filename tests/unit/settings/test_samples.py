"""dist.toml and the samples say what the program does."""

import re
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel

from lakesweep.settings.cleanup import CleanupOverride
from lakesweep.settings.error_messages import _is_array, _model_in
from lakesweep.settings.load import load
from lakesweep.settings.schema import Settings
from lakesweep.settings.tenants import TenantStorage

TOP = Path(__file__).parents[3]
DIST = TOP / "dist.toml"


def uncommented() -> str:
    """dist.toml with its examples switched on: `#key` is an example, `# text` is a comment."""
    return re.sub(r"(?m)^#(?=\S)", "", DIST.read_text())


def schema_keys(model: type[BaseModel] = Settings, above: str = "") -> set[str]:
    """Every key, overrides as a whole: they repeat keys that are documented already."""
    keys = set()
    for name, info in model.model_fields.items():
        below, key = _model_in(info.annotation), f"{above}{name}"
        if below is None or below in (CleanupOverride, type(TenantStorage().s3)):
            keys.add(key)
        else:
            keys |= schema_keys(below, f"{key}[]." if _is_array(info.annotation) else f"{key}.")
    return keys


def document_keys(document: dict, known: set[str], above: str = "") -> set[str]:
    keys = set()
    for name, value in document.items():
        key = f"{above}{name}"
        if key in known:
            keys.add(key)
        elif isinstance(value, list):
            keys |= {found for one in value for found in document_keys(one, known, f"{key}[].")}
        elif isinstance(value, dict):
            keys |= document_keys(value, known, f"{key}.")
        else:
            keys.add(key)
    return keys


def test_dist_toml_gives_exactly_the_defaults():
    assert load(DIST) == Settings()


def test_dist_toml_states_every_default_that_toml_can_hold():
    stated = tomllib.loads(DIST.read_text())
    stated_keys = document_keys(stated, schema_keys())
    defaults = Settings().model_dump(exclude_none=True, exclude={"tenants": True, "service": {"data_dir"}})
    assert document_keys(defaults, schema_keys()) <= stated_keys


def test_dist_toml_mentions_every_key_and_no_other():
    known = schema_keys()
    assert document_keys(tomllib.loads(uncommented()), known) == known


def test_the_examples_in_dist_toml_are_valid(write):
    settings = load(write(uncommented()))
    assert [dataset.id for dataset in settings.tenants[0].datasets] == ["prod", "events", "bronze"]


@pytest.mark.parametrize("sample", sorted((TOP / "config").glob("*.toml")), ids=lambda path: path.stem)
def test_a_sample_loads(sample):
    assert load(sample).tenants


def test_only_the_production_sample_deletes_by_itself():
    deleting = {
        path.stem
        for path in (TOP / "config").glob("*.toml")
        if (cleanup := load(path).orphan_cleanup).enabled and not cleanup.dry_run
    }
    assert deleting == {"production"}


def test_the_production_sample_asks_for_two_sightings():
    assert load(TOP / "config" / "production.toml").orphan_cleanup.confirm_after_hours == 24
