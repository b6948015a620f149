"""The settings as a page of documentation, made from the schema alone.

Names, types, limits, defaults and descriptions come from the JSON schema of `Settings`, so that the page cannot say
anything else than what the program accepts. Reads and writes no file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from lakesweep.settings.load import PREFIX
from lakesweep.settings.schema import Settings
from lakesweep.settings.tenants import DatasetSettings, TableSettings, TenantSettings, TenantStorage

Schema = dict[str, Any]

_HEAD = """# Settings

<!-- Made by `make docs` from the schema. Change the text under the fields in service/lakesweep/settings. -->

One TOML file, named with `--config FILE` after any command or in the variable `LAKESWEEP_CONFIG`. Settings that
are not given have their defaults; environment variables override the file. [dist.toml](../dist.toml) shows the same
keys as a file to copy from. An unknown key is an error, and all errors of a file are reported at once.

A setting's variable is `LAKESWEEP_`, then its sections and its name, joined by two underscores. A whole section or
array is given as JSON: `LAKESWEEP_TENANTS='[{"id": "acme", "root": "s3://lake/acme"}]'`.

**Levels.** A setting with several levels can be given again for a tenant, a dataset or a table, and the most
specific one applies: global < tenant < dataset < table. For three settings the safest value at any
level applies: true for `dry_run`, `trash` for `deletion`, the longest `ghost_grace_hours`.
Settings with the level global exist once. `lakesweep settings TARGET` [shows](cli.md#which-settings-apply) what applies
to a table and which level gave it.
"""

_LEVELS = (("tenant", TenantSettings), ("dataset", DatasetSettings), ("table", TableSettings))
_KINDS = {"boolean": "true or false", "integer": "whole number", "number": "number", "string": "text"}
_FORMATS = {
    "address": "address: `s3://…`, `file://…` or an absolute path",
    "connect-url": "`sc://host:port`",
    "scratch": "address, or absolute directory",
    "cron": "five fields of cron",
    "http-url": "`http://…` or `https://…`",
    "identifier": "name without `/ * ? [ ]`",
    "listen": "`host:port`",
    "memory": "size with its unit, such as `512MB` or `4GiB`",
    "path": "absolute directory, or one that begins with `~/`",
    "state-url": "`postgresql://…`, `sqlite:///…` or `memory://`",
}
_OVERRIDES = {"CleanupOverride": "[orphan_cleanup]"} | {
    type(getattr(TenantStorage(), name)).__name__: f"[storage.{name}]" for name in TenantStorage.model_fields
}
"""Models that repeat the keys of a section; these are not documented again."""


def page() -> str:
    schema = Settings.model_json_schema()
    return _HEAD + "".join(_section(schema, (), name, about) for name, about in schema["properties"].items())


def _section(whole: Schema, above: tuple[str, ...], name: str, about: Schema) -> str:
    """A section, and those inside it. `about` is a property that is a table or an array of tables."""
    path, model = (*above, name), _model(whole, about)
    keys = {key: value for key, value in model["properties"].items() if not _is_section(whole, value)}
    text = ""
    if keys:
        text += f"\n## {_brackets(path)}\n\n{_sentence(model['description'].partition(': ')[2])}\n\n"
        text += f"Level: {' < '.join(_levels(path))}.\n"
        text += "\n| setting and variable | type | default | what it is |\n|---|---|---|---|\n"
        text += "".join(f"{_row(whole, model, path, key, value)}\n" for key, value in keys.items())
    inner = ((key, value) for key, value in model["properties"].items() if key not in keys)
    return text + "".join(_section(whole, path, key, value) for key, value in inner)


def _row(whole: Schema, model: Schema, path: tuple[str, ...], key: str, about: Schema) -> str:
    variable = "" if path[0] == "tenants" else f"<br>`{PREFIX}{'__'.join((*path, key)).upper()}`"
    required = key in model.get("required", ())
    cells = (f"`{key}`{variable}", _kind(whole, about), _default(about, required=required))
    return f"| {' | '.join(cells)} | {_cell(about['description'])} |"


def _kind(whole: Schema, about: Schema) -> str:
    """The type as text, with what it allows."""
    if (repeated := _repeats(about)) is not None:
        return f"table with any key of `{repeated}`"
    found = _resolved(whole, about)
    if "enum" in found:
        return " or ".join(f"`{value}`" for value in found["enum"])
    if (form := about.get("format", found.get("format"))) is not None:
        return _FORMATS[form]
    if found["type"] == "object":
        return "table of texts"
    if found["type"] == "array":
        return f"list of {_kind(whole, found['items'])}"
    return _KINDS[found["type"]] + ", ".join(("", *_limits(found)))


def _limits(found: Schema) -> Iterator[str]:
    low, high = found.get("minimum", found.get("ge")), found.get("maximum", found.get("le"))
    if low is not None:
        yield f"{low:.0f} or more" if high is None else f"{low:.0f} to {high:.0f}"
    elif high is not None:
        yield f"above {found.get('exclusiveMinimum', found.get('gt')):.0f}, at most {high:.0f}"


def _default(about: Schema, *, required: bool) -> str:
    if required:
        return "required"
    if "default" not in about:
        return "`{}`" if about.get("type") == "object" else "see there"
    value = about["default"]
    if value is None or isinstance(value, dict):
        return "none"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"`{json.dumps(value)}`"


def _levels(path: tuple[str, ...]) -> list[str]:
    if path[0] == "tenants":
        return ["table" if "tables" in path else "dataset" if "datasets" in path else "tenant"]
    return ["global", *(level for level, model in _LEVELS if path[0] in model.model_fields)]


def _is_section(whole: Schema, about: Schema) -> bool:
    """Does this property have its own settings that are not documented elsewhere?"""
    return _repeats(about) is None and "properties" in _model(whole, about)


def _repeats(about: Schema) -> str | None:
    return _OVERRIDES.get(about.get("$ref", "").rpartition("/")[2])


def _model(whole: Schema, about: Schema) -> Schema:
    return _resolved(whole, about["items"] if about.get("type") == "array" else about)


def _resolved(whole: Schema, about: Schema) -> Schema:
    """The schema of a property: references resolved, and without the null of an optional one."""
    if "anyOf" in about:
        about = next(one for one in about["anyOf"] if one.get("type") != "null")
    if "$ref" in about:
        found: Schema = whole["$defs"][about["$ref"].rpartition("/")[2]]
        return found
    return about


def _brackets(path: tuple[str, ...]) -> str:
    dotted = ".".join(path)
    return f"[[{dotted}]]" if path[0] == "tenants" and path[1:2] != ("storage",) else f"[{dotted}]"


def _cell(text: str) -> str:
    """One line, with characters escaped that Markdown would take for a column or a tag."""
    line = " ".join(text.split()).replace("|", r"\|")
    return re.sub(r"<(?=\w)", "&lt;", line)


def _sentence(text: str) -> str:
    line = _cell(text)
    return line[:1].upper() + line[1:]
