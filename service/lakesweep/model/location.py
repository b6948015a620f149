"""Addresses: parse, normalise, contain, compare. Pure text processing; a key is never URL-parsed or unquoted.

`raw` is what was listed or written and the only thing that is ever deleted. `match_key` is what two
addresses are compared by: one scheme per store, one form for local paths, runs of slashes collapsed.
Collapsing can only make two objects look like one, which keeps a file too many and never loses one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

SCHEME_ALIASES = {"s3a": "s3", "s3n": "s3"}
"""Other spellings of one store. Both sides of every comparison go through this table."""

_ACCESS_POINT_ALIASES = ("-s3alias", "--ol-s3", "-ext-s3alias")

DOT_SEGMENT = r"(^|/)\.{1,2}(/|$)"
"""A segment `.` or `..` of a path, for Python's and Arrow's search: where it leads depends on who reads it."""

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):(.*)$", re.DOTALL)
_SLASHES = re.compile(r"/{2,}")


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A normalised address: scheme, authority (bucket or host, may be empty) and the raw path. For object stores `path`
    is the key, byte for byte. For `file` it is the absolute path."""

    scheme: str
    authority: str
    path: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Split by hand: `#`, `?`, `%` and `+` are ordinary characters of a key."""
        found = _SCHEME.match(text)
        if not found:
            if not text.startswith("/"):
                raise ValueError(f"not an absolute address: {text!r} (expected scheme://… or /path)")
            return cls("file", "", text)
        scheme = found.group(1).lower()
        scheme = SCHEME_ALIASES.get(scheme, scheme)
        rest = found.group(2)
        if scheme == "file":
            return cls("file", "", _local_path(text, rest))
        if not rest.startswith("//"):
            raise ValueError(f"not an address: {text!r} (expected {scheme}://…)")
        authority, _, path = rest[2:].partition("/")
        if not authority:
            raise ValueError(f"address without a bucket or host: {text!r}")
        return cls(scheme, authority, path)

    @classmethod
    def parse_or_none(cls, text: str) -> Self | None:
        """The same; None if it is not an address."""
        try:
            return cls.parse(text)
        except ValueError:
            return None

    @property
    def is_local(self) -> bool:
        """Is it a path of this machine's file system, rather than a key in a bucket?"""
        return self.scheme == "file"

    @property
    def raw(self) -> str:
        """The full address. `parse(x.raw) == x`."""
        if self.is_local:
            return f"file://{self.path}"
        return f"{self.scheme}://{self.authority}/{self.path}"

    @property
    def store(self) -> str:
        """The prefix that exactly the addresses in the same store share, as `raw` spells it."""
        return "file:///" if self.is_local else f"{self.scheme}://{self.authority}/"

    @property
    def match_key(self) -> str:
        """The normalised form that addresses are compared by. See `cleanup.addresses` for the same on Arrow columns."""
        path = _SLASHES.sub("/", self.path) if "//" in self.path else self.path
        if self.is_local:
            return f"file://{path}"
        return f"{self.scheme}://{self.authority}/{path.lstrip('/')}"

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def join(self, *parts: str) -> Location:
        base = self.path.rstrip("/")
        tail = "/".join(part.strip("/") for part in parts)
        return Location(self.scheme, self.authority, f"{base}/{tail}" if base or self.is_local else tail)

    def as_directory(self) -> Location:
        """The same place with exactly one trailing slash, so that `t1/` never lists `t10/`."""
        path = self.path.rstrip("/")
        return Location(self.scheme, self.authority, f"{path}/" if path or self.is_local else "")

    def contains(self, other: Location) -> bool:
        """Segment-wise: is `other` strictly below this place? Dot segments are never inside anything."""
        if (self.scheme, self.authority) != (other.scheme, other.authority):
            return False
        if any(segment in (".", "..") for segment in other.path.split("/")):
            return False
        prefix = self.as_directory().path
        return other.path.startswith(prefix) and len(other.path) > len(prefix)

    def directories_above(self, paths: Iterable[str]) -> set[str]:
        """Every directory from this place (the empty name) down to the directories of the raw paths below it."""
        prefix = self.as_directory().raw
        found = {""}
        for directory in {path.removeprefix(prefix).rpartition("/")[0] for path in paths if path.startswith(prefix)}:
            levels = directory.split("/")
            found.update("/".join(levels[:depth]) for depth in range(1, len(levels) + 1))
        return found

    def overlaps(self, other: Location) -> bool:
        """Are both the same place, or is one inside the other? Compared normalised: doubt means yes."""
        if self.scheme != other.scheme:
            return False
        mine, theirs = self.match_key.rstrip("/") + "/", other.match_key.rstrip("/") + "/"
        if self.may_be_bucket_of(other):
            keys = (self.key_in_bucket, other.key_in_bucket)
            mine, theirs = (f"{key.rstrip('/')}/" if key else "" for key in keys)
        elif self.authority != other.authority:
            return False
        return mine.startswith(theirs) or theirs.startswith(mine)

    @property
    def may_be_any_bucket(self) -> bool:
        """Is this an S3 access point, by its ARN or its alias? Then the bucket behind it is unknown here."""
        name = self.authority
        return self.scheme == "s3" and (name.startswith("arn:") or name.endswith(_ACCESS_POINT_ALIASES))

    def may_be_bucket_of(self, other: Location) -> bool:
        """May both lead into one bucket under two names? Then their keys decide whether they are one place."""
        return self.scheme == other.scheme and (self.may_be_any_bucket or other.may_be_any_bucket)

    @property
    def key_in_bucket(self) -> str:
        """The key with which a bucket and its access points call the same place; empty for all of it."""
        key = _SLASHES.sub("/", self.path).lstrip("/")
        return key.partition("/")[2] if self.authority.endswith(":accesspoint") else key  # arn:…:accesspoint/NAME/key

    def __str__(self) -> str:
        return self.raw


def _local_path(text: str, rest: str) -> str:
    """`file:/x`, `file:///x` and `file://localhost/x` are one place: `/x`."""
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise ValueError(f"a file address on another host: {text!r}")
        return slash + path if slash else "/"
    if not rest.startswith("/"):
        raise ValueError(f"not an absolute file address: {text!r}")
    return rest
