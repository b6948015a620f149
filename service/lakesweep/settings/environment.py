"""Read environment variables into a nested document. `load.py` checks names, the schema checks values."""

from __future__ import annotations

from typing import Any

from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as EnvironmentFault

from lakesweep.model.errors import SettingsError
from lakesweep.settings.schema import Settings


class _Environment(Settings, BaseSettings):
    """Only defines how variables are named; it is never instantiated."""

    model_config = SettingsConfigDict(env_nested_delimiter="__", env_ignore_empty=True)


def read(prefix: str) -> tuple[dict[str, Any], list[str]]:
    """The document, and a message for each variable that is not the JSON its section needs."""
    faults: list[str] = []
    source = EnvSettingsSource(_Environment, env_prefix=prefix)
    while True:
        try:
            return source(), faults
        except EnvironmentFault as exc:
            text = getattr(exc.__cause__, "doc", None)
            wrong = {
                name for name, value in source.env_vars.items() if value == text and name.startswith(prefix.lower())
            }
            if not wrong:
                raise SettingsError(f"environment: {exc}") from exc
            faults += [f"environment variable {name.upper()}: must be JSON: {exc.__cause__}" for name in sorted(wrong)]
            source.env_vars = {name: value for name, value in source.env_vars.items() if name not in wrong}
