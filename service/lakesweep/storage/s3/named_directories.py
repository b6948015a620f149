"""Which of a few names are directories right below an S3 prefix, with as few requests as possible. Lists only.

A page with a delimiter shows keys and directories in key order. It answers for every name up to its last entry, and the
last page for all names behind its start. A table's directory rarely holds anything between two of the names that are
asked for, so one or two pages answer for all. A name that no page answers for, or a store that is seen to list in
another order, costs one request for each name.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakesweep.storage.s3.list_parser import Page
from lakesweep.storage.s3.listing import FetchPage


async def named_directories(fetch: FetchPage, prefix: str, names: Sequence[str], *, sorts: bool) -> set[str]:
    """Those of the names below which there is any key, a directory marker included."""
    found: set[str] = set()
    waiting = sorted(set(names))
    while sorts and len(waiting) > 1:
        after = prefix + waiting[0]
        page = await fetch({"Prefix": prefix, "Delimiter": "/", "StartAfter": after})
        if not _is_in_order(page, after):
            break
        found |= {name for name in waiting if f"{prefix}{name}/" in page.prefixes}
        if page.next_token is None:
            return found
        left = [name for name in waiting if f"{prefix}{name}/" > _last(page)]
        if left == waiting:
            break
        waiting = left
    for name in waiting:
        page = await fetch({"Prefix": f"{prefix}{name}/"})
        if len(page.keys) or page.next_token is not None:
            found.add(name)
    return found


def _is_in_order(page: Page, after: str) -> bool:
    """A store that ignores StartAfter begins before it."""
    first = [*page.keys[:1].to_pylist(), *page.prefixes[:1]]
    ordered = all(one < other for one, other in zip(page.prefixes, page.prefixes[1:], strict=False))
    return ordered and page.is_ascending() and all(one > after for one in first)


def _last(page: Page) -> str:
    return max([*page.keys[-1:].to_pylist(), *page.prefixes[-1:]], default="")
