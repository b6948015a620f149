"""Keep secrets out of output and logs. Masking too much is the safe mistake."""

from __future__ import annotations

import re
from typing import Any

MASK = "***"

_SECRET_NAME = re.compile(
    r"token|secret|passw|credential|private|signature|authorization|(api|access|session|account|installation)[-_.]?key",
    re.IGNORECASE,
)
_USERINFO = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^\s/@]*@")
_ASSIGNED = re.compile(
    r"""(?ix)(?P<name>["']?[\w.-]*(?:token|secret|password|passwd|credential|signature|access[-_.]?key|installation[-_.]?key)[\w.-]*["']?\s*[=:]\s*)
    (?P<value>"[^"]*"|'[^']*'|[^\s,;&"'}\]]+)"""
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")


def is_secret(name: str) -> bool:
    """Does a key of this name hold something that must not be shown?"""
    return name != "fencing_token" and bool(_SECRET_NAME.search(name))


def mask_text(text: str) -> str:
    """Text with passwords in addresses, `token=…` and bearer tokens masked."""
    text = _USERINFO.sub(rf"\g<scheme>{MASK}@", text)
    text = _BEARER.sub(rf"\1 {MASK}", text)
    return _ASSIGNED.sub(rf"\g<name>{MASK}", text)


def mask(value: Any, name: str = "") -> Any:
    """A value fit to be shown, whatever it is nested in."""
    if isinstance(value, dict):
        return {key: mask(inner, str(key)) for key, inner in value.items()}
    if is_secret(name) and value is not None and not isinstance(value, bool):
        return MASK
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, list | tuple):
        return [mask(inner) for inner in value]
    return value
