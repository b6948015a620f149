"""Keys as listings and inventories spell them: percent-encoded like the fields of a form. Pure."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

_FREQUENT_ESCAPES = (("%3D", "="), ("%2F", "/"), ("%3A", ":"))
"""The most frequent escapes, replaced in bulk. No replacement can become part of another escape."""


def decoded_keys(texts: pa.StringArray) -> pa.StringArray:
    if _holds(texts, "+"):
        texts = pc.replace_substring(texts, "+", " ")
    return unescape(texts, "%", _FREQUENT_ESCAPES, unquote_strictly)


def unescape(
    texts: pa.StringArray, sign: str, frequent: tuple[tuple[str, str], ...], decode: Callable[[str], str]
) -> pa.StringArray:
    """Replace the frequent escapes in bulk, then decode one by one the strings that still contain the sign."""
    if not _holds(texts, sign):
        return texts
    for escape, character in frequent:
        if _holds(texts, escape):
            texts = pc.replace_substring(texts, escape, character)
    if not _holds(texts, sign):
        return texts
    left = pc.match_substring(texts, sign)
    return pc.replace_with_mask(texts, left, pa.array(map(decode, texts.filter(left).to_pylist()), pa.string()))


def _holds(texts: pa.StringArray, part: str) -> bool:
    """Does any string contain the part? One search over the column's memory."""
    memory = texts.buffers()[2]
    return memory is not None and part.encode() in memory.to_pybytes()


def unquote_strictly(text: str) -> str:
    """Decode one string; raises if it is not UTF-8."""
    return unquote(text, errors="strict")
