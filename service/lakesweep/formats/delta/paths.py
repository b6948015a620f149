"""Turn paths as a Delta log spells them into raw addresses. Pure. They are URIs, percent-decoded exactly once: a
directory that is called `k=e%3Af` on disk is spelled `k=e%253Af`. An absolute path that does not lie below the table's
root may still be one of its files, seen through another name of the root (a symlink, a mount, another endpoint). Its
place below the root is some tail of that path; so every tail is kept, joined to the root we know."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote
from uuid import UUID

from lakesweep.model.location import DOT_SEGMENT, Location


class Malformed(ValueError):
    """An action or a path that Delta would not write. The caller that knows the file's address turns it into
    Unreadable."""


_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_DOTS = re.compile(DOT_SEGMENT)
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_NO_DIGIT = 255
_Z85_DIGITS = bytes(_Z85.index(chr(byte)) if chr(byte) in _Z85 else _NO_DIGIT for byte in range(256))
_ENCODED_UUID = 20
_UUID_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a spelled path leads."""

    address: str | None
    """The raw address below the root; None when the path leads elsewhere."""
    aliases: tuple[str, ...] = ()
    """Addresses below the root that an outside path may mean."""
    elsewhere: str | None = None
    """The address of an outside path as it is spelled, only to count it. Nothing is listed or deleted there."""


def resolve(spelled: str, root: Location) -> Place:
    text = unquote(spelled, errors="strict")
    if _ABSOLUTE.match(spelled):
        return _place(Location.parse_or_none(text), text, root)
    if text.startswith("/"):  # in the table's own store
        path = text if root.is_local else text.lstrip("/")
        return _place(Location(root.scheme, root.authority, path), text, root)
    if not text:
        raise Malformed("an empty path")
    if _DOTS.search(text):
        return _with_dots(text, root)
    return Place(address=root.as_directory().raw + text)


def _with_dots(text: str, root: Location) -> Place:
    """`./a` and `x/../a` are `a` to Spark and to file systems, so `a` stays. A store with objects of such names is not
    cleaned. What leads out of the root is treated like any path elsewhere."""
    meant = posixpath.normpath(text)
    if meant.startswith(".."):
        spelled = Location(root.scheme, root.authority, root.as_directory().path + text)
        return Place(address=None, aliases=_aliases(text, root), elsewhere=_elsewhere(spelled, text, root))
    return Place(address=None, aliases=(root.as_directory().raw + meant,))


def place(spelled: str, root: Location) -> Place:
    """The same for an absolute address that is not encoded, as Iceberg spells it."""
    return _place(Location.parse_or_none(spelled), spelled, root)


def _place(location: Location | None, text: str, root: Location) -> Place:
    elsewhere = _elsewhere(location, text, root)
    if location is None:
        return Place(address=None, aliases=_aliases(text, root), elsewhere=elsewhere)
    if location.match_key.startswith(_below(root)):
        return Place(address=location.raw)
    return Place(address=None, aliases=_aliases(location.path, root), elsewhere=elsewhere)


def _below(root: Location) -> str:
    return root.match_key.rstrip("/") + "/"


def _elsewhere(location: Location | None, text: str, root: Location) -> str | None:
    """An address without dot segments that stands for an outside path; None if that would be below the root. What is no
    address to us (`dbfs:/a/b`) is given the form of one: it is counted, never opened."""
    if location is None:
        scheme, _, rest = text.partition(":")
        rest = rest.lstrip("/")  # a local address has no host
        location = Location.parse_or_none(f"{scheme}:///{rest}") or Location.parse_or_none(f"{scheme}://{rest}")
    if location is None or location.authority in (".", ".."):
        return None
    path = posixpath.normpath("/" + location.path.lstrip("/"))
    found = Location(location.scheme, location.authority, path if location.is_local else path[1:])
    return None if found.match_key.startswith(_below(root)) else found.raw


def _aliases(path: str, root: Location) -> tuple[str, ...]:
    segments = [segment for segment in path.split("/") if segment not in ("", ".", "..")]
    base = root.as_directory().raw
    return tuple(base + "/".join(segments[start:]) for start in range(len(segments)))


def bare_name(spelled: str) -> str:
    """The last segment, decoded: sidecars live in one directory and are known by their names."""
    name = unquote(spelled, errors="strict").rpartition("/")[2]
    if not name:
        raise Malformed(f"{spelled!r} does not name a file")
    return name


def deletion_vector(descriptor: dict[str, Any], root: Location) -> Place | None:
    """Where a deletion vector is stored; None when it is inline. Raises Malformed on an unknown kind."""
    storage, text = descriptor.get("storageType"), descriptor.get("pathOrInlineDv")
    if not isinstance(text, str):
        raise Malformed("a deletion vector has no path")
    match storage:
        case "i":
            return None
        case "u":
            return Place(address=root.as_directory().raw + vector_name(text))
        case "p":
            return resolve(text, root)
        case _:
            raise Malformed(f"a deletion vector of the unknown kind {storage!r}")


def deletion_vector_id(descriptor: dict[str, Any] | None) -> str:
    """What distinguishes two deletion vectors of one data file."""
    if not descriptor:
        return ""
    offset = descriptor.get("offset")
    place = f"{descriptor.get('storageType')}{descriptor.get('pathOrInlineDv')}"
    return place if offset is None else f"{place}@{offset}"


def vector_name(text: str) -> str:
    """`<random prefix><encoded uuid>` is `<prefix>/deletion_vector_<uuid>.bin` below the root. Raises Malformed."""
    prefix, encoded = text[:-_ENCODED_UUID], text[-_ENCODED_UUID:]
    raw = z85_decode(encoded)
    if len(raw) != _UUID_BYTES:
        raise Malformed(f"{text!r} does not end with an encoded uuid")
    name = f"deletion_vector_{UUID(bytes=raw)}.bin"
    return f"{prefix}/{name}" if prefix else name


def z85_decode(text: str) -> bytes:
    """Five characters are four bytes. Raises Malformed on anything else."""
    digits = text.encode(errors="surrogatepass").translate(_Z85_DIGITS)
    if len(text) % 5 or _NO_DIGIT in digits:
        raise Malformed(f"{text!r} is not Z85 text")
    out = b""
    for start in range(0, len(digits), 5):
        a, b, c, d, e = digits[start : start + 5]
        value = (((a * 85 + b) * 85 + c) * 85 + d) * 85 + e
        if value >> 32:
            raise Malformed(f"{text!r} is not Z85 text")
        out += value.to_bytes(4, "big")
    return out
