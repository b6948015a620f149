"""The types of setting values, each with its constraints. Pure. Messages never contain secrets."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, create_model
from pydantic_core import PydanticCustomError

from lakesweep.model.location import Location

LONGEST_HOURS = 1_000_000
"""More than a hundred years. A larger number is a mistake in the unit."""


class Group(BaseModel):
    """A section of the settings. Unknown keys are errors; the text under a field is its documentation."""

    # Deferred: a nested group is built together with its parent, and would be built twice otherwise.
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, defer_build=True)


class _Override(Group):
    """Takes the documentation of its fields from another group, so no source text is searched for it."""

    model_config = ConfigDict(use_attribute_docstrings=False)


def override_of(group: type[Group], about: str) -> type[Group]:
    """A group with the same keys, all optional: what is not given is inherited."""
    fields: dict[str, Any] = {}
    for key, info in group.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, Group):
            inner = override_of(info.annotation, about)
            fields[key] = (inner, inner())
            continue
        # Constraints belong to the value, so that None, for an inherited key, is allowed as well.
        value: Any = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
        fields[key] = (value | None, Field(default=None, description=info.description, repr=info.repr))
    name = group.__name__.removeprefix("Orphan").removesuffix("Settings")
    return create_model(f"{name}Override", __base__=_Override, __doc__=about, **fields)


def _fault(message: str) -> PydanticCustomError:
    # The message is passed as a value: a brace in it is not a placeholder.
    return PydanticCustomError("lakesweep", "{message}", {"message": message})


def _not_a_boolean(value: Any) -> Any:
    """In Python a boolean is a number; here it is not."""
    if isinstance(value, bool):
        raise _fault("must be a number")
    return value


def _address(text: str) -> str:
    try:
        location = Location.parse(text)
    except ValueError as exc:
        raise _fault(f"must be an address: {exc}") from None
    from lakesweep.storage.kinds import KINDS  # noqa: PLC0415 - the settings of stores are made of these values

    if location.scheme not in {kind.scheme for kind in KINDS}:
        raise _fault(f"must be an address s3://…, file://… or /path: there is no store for {location.scheme}://")
    if any(segment in (".", "..") for segment in location.path.split("/")):
        raise _fault("must not contain the path segments '.' or '..'")
    return text


def _scratch_place(text: str) -> str:
    if not re.fullmatch(r"/.*|[A-Za-z][A-Za-z0-9+.-]*:/.*", text):
        raise _fault("must be an address such as s3://bucket/path or hdfs://host/path, or an absolute directory")
    if any(segment in (".", "..") for segment in text.split("/")):
        raise _fault("must not contain the path segments '.' or '..'")
    from lakesweep.storage.kinds import has_store  # noqa: PLC0415 - the settings of stores are made of these values

    if has_store(text):
        _address(text)
    return text


def _identifier(text: str) -> str:
    if not text or text in (".", "..") or text != text.strip() or not text.isprintable():
        raise _fault("must be a printable name without leading or trailing blanks")
    if found := sorted(set(text) & set("/*?[]")):
        raise _fault(f"must not contain {' '.join(found)}: targets are written tenant/dataset/table, with globs")
    return text


def _listen(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdecimal() and int(port) < 65536) or (":" in host and not host.startswith("[")):
        raise _fault("must be host:port, such as 127.0.0.1:9464 or [::1]:9464")
    return text


def _cron(text: str) -> str:
    try:
        moments = CronSim(text, datetime(2000, 1, 1, tzinfo=UTC))
        next(moments)
    except (CronSimError, StopIteration) as exc:
        why = str(exc) or "no such day"
        raise _fault(f"must be five fields of cron, such as 30 2 * * * for half past two each night ({why})") from None
    return text


def _memory(text: str) -> str:
    if not re.fullmatch(r"[1-9]\d*(\.\d+)? ?(KB|MB|GB|TB|KiB|MiB|GiB|TiB)", text):
        raise _fault("must be a size with its unit, such as 512MB or 4GiB")
    return text


_UNITS = {
    unit: base**power
    for base, units in ((1000, "KB MB GB TB"), (1024, "KiB MiB GiB TiB"))
    for power, unit in enumerate(units.split(), 1)
}


def in_bytes(size: str) -> int:
    unit = size.lstrip("0123456789. ")
    return int(float(size.removesuffix(unit)) * _UNITS[unit])


def _absolute(path: Path) -> Path:
    try:
        path = path.expanduser()
    except RuntimeError as exc:
        raise _fault(f"must be a directory whose ~ can be resolved: {exc}") from None
    if not path.is_absolute() or ".." in path.parts:
        raise _fault("must be an absolute directory, or begin with ~/")
    return path


def _dotted(value: Any) -> Any:
    """`{ s3.endpoint = "x" }` is a nested table in TOML, and one dotted property everywhere else."""
    if not isinstance(value, dict):
        return value
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, dict):
            flat |= {f"{key}.{below}": deepest for below, deepest in _dotted(inner).items()}
        elif isinstance(inner, bool):
            flat[key] = str(inner).lower()
        else:
            flat[key] = str(inner) if isinstance(inner, int | float) else inner
    return flat


def _form(name: str) -> Any:
    """Names a type of text in the JSON schema, for docs/settings.md."""
    return Field(json_schema_extra={"format": name})


Count = Annotated[int, BeforeValidator(_not_a_boolean), Field(ge=1)]
Hours = Annotated[float, BeforeValidator(_not_a_boolean), Field(ge=0, le=LONGEST_HOURS, allow_inf_nan=False)]
Interval = Annotated[float, BeforeValidator(_not_a_boolean), Field(gt=0, le=LONGEST_HOURS, allow_inf_nan=False)]
Days = Annotated[float, BeforeValidator(_not_a_boolean), Field(ge=1, le=LONGEST_HOURS / 24, allow_inf_nan=False)]
Minutes = Annotated[float, BeforeValidator(_not_a_boolean), Field(ge=0, le=1440, allow_inf_nan=False)]
Share = Annotated[float, BeforeValidator(_not_a_boolean), Field(gt=0, le=1, allow_inf_nan=False)]
Price = Annotated[float, BeforeValidator(_not_a_boolean), Field(ge=0, le=1_000_000, allow_inf_nan=False)]
Address = Annotated[str, AfterValidator(_address), _form("address")]
ScratchPlace = Annotated[str, AfterValidator(_scratch_place), _form("scratch")]
Identifier = Annotated[str, AfterValidator(_identifier), _form("identifier")]
Listen = Annotated[str, AfterValidator(_listen), _form("listen")]
Cron = Annotated[str, AfterValidator(_cron), _form("cron")]
MemorySize = Annotated[str, AfterValidator(_memory), _form("memory")]
Directory = Annotated[Path, AfterValidator(_absolute)]
Properties = Annotated[dict[str, str], BeforeValidator(_dotted)]
