"""Local stores as nearly every test wants them: a file is as old as the test dated it.

Tests make their old files a moment ago and set the mtime back, so the age counts by the mtime alone. Commands and
services that tests start are told the same by `AGED_BY_MTIME`, which `conftest.py` puts into the environment.
"""

from __future__ import annotations

from functools import partial

from lakesweep.daemon.unpublished_files import GatedUnpublishedRemover as _GatedUnpublishedRemover
from lakesweep.model.files import AgeBy
from lakesweep.storage.local.settings import LocalOptions
from lakesweep.storage.local.store import LocalStorage as _LocalStorage
from lakesweep.storage.s3.settings import S3Options
from lakesweep.storage.spec import StorageSpec as _StorageSpec

AGED_BY_MTIME = {"LAKESWEEP_STORAGE__LOCAL__AGE_BY": "modification"}


class LocalStorage(_LocalStorage):
    """Judges by the mtime alone."""

    def __init__(self):
        super().__init__(AgeBy.MODIFICATION)


def StorageSpec(*, s3: S3Options | None = None, **other) -> _StorageSpec:
    """The product's, judging local files by the mtime alone."""
    local = LocalOptions(age_by=AgeBy.MODIFICATION)
    return _StorageSpec(stores=(local, *([s3] if s3 else [])), **other)


GatedUnpublishedRemover = partial(_GatedUnpublishedRemover, age_by=AgeBy.MODIFICATION)

ODD_NAMES = [
    "with space",
    "trailing space ",
    "hash#1",
    "what?x=1",
    "50%",
    "a%20b",
    "%2F",
    "a+b",
    "a&b",
    "<tag>",
    "&amp;",
    "quote\"and'apostrophe",
    "ünïcode-ß",
    "日本語",
    "emoji-😀",
    ".hidden",
    "..double",
    "_under",
    "k=v%3Dw",
    "semi;colon:at@",
    "tab\there",
    "line\nbreak",
    "~tilde~",
    "\x01control",
]
