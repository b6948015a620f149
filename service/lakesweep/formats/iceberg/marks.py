"""The names that our own expiry commits give to metadata files, where the client writes them. Pure.

What an expiry leaves that ended before its commit is a file that follows from the current one and takes snapshots away.
So is the one commit of a second catalog that has expired snapshots itself, and that one is live. Their contents are no
different. So half of the uuid in our names is random, and half is a digest of that half and of the file it was made
from: nobody else writes such a name, and it reveals nothing about a table.
"""

from __future__ import annotations

import hashlib
import re
import uuid

_NAME = re.compile(r"\d+-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.metadata\.json")
_HALF = 8
"""Bytes."""


def new_name(version: int, parent: str) -> str:
    """For a file that is made from `parent`, a match key."""
    return f"{version:05d}-{_marked(uuid.uuid4().bytes[:_HALF], parent)}.metadata.json"


def is_ours(name: str, parent: str) -> bool:
    """Did an expiry of ours give this name to what it made from `parent`?"""
    found = _NAME.fullmatch(name)
    if found is None:
        return False
    known = uuid.UUID(found.group(1))
    return known == _marked(known.bytes[:_HALF], parent)


def _marked(chance: bytes, parent: str) -> uuid.UUID:
    digest = hashlib.sha256(b"lakesweep expiry\0" + chance + parent.encode()).digest()
    return uuid.UUID(bytes=chance + digest[:_HALF], version=4)
