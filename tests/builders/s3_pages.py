"""What test_s3_listing.py and its neighbours are made of."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing

import pyarrow as pa
from hypothesis import strategies as st

from lakesweep.model.location import Location
from lakesweep.ports.storage import LISTING_SCHEMA, Part
from lakesweep.storage.s3.list_parser import Page
from lakesweep.storage.s3.listing import Listing


class Store:
    """Lists keys like S3, in key order or, as a file system would, directory by directory."""

    def __init__(self, keys, *, page_size, by_directory=False, seed=0):
        self._order = (lambda key: key.split("/")) if by_directory else (lambda key: key)
        self._keys = sorted(set(keys), key=self._order)
        self._page_size = page_size
        self._random = random.Random(seed)
        self.in_flight = self.most_in_flight = 0
        self.requests = []
        self.fault = None

    async def fetch(self, **parameters):
        self.requests.append(parameters)
        number = len(self.requests)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            for _ in range(self._random.randrange(4)):
                await asyncio.sleep(0)
            if self.fault:
                self.fault(number, parameters)
            return self._page(parameters)
        finally:
            self.in_flight -= 1

    def _page(self, parameters):
        prefix = parameters["Prefix"]
        after = parameters.get("ContinuationToken") or parameters.get("StartAfter")
        rows = [key for key in self._keys if key.startswith(prefix)]
        if after is not None:
            rows = [key for key in rows if self._order(key) > self._order(after)]
        if "Delimiter" in parameters:
            rest = {key: key[len(prefix) :] for key in rows}
            rows = list(dict.fromkeys(prefix + r[: r.index("/") + 1] if "/" in r else k for k, r in rest.items()))
        shown = rows[: self._page_size]
        keys = [row for row in shown if row in self._keys]
        listed = [{"path": key, "size_bytes": 1, "modified_at": None, "etag": None} for key in keys]
        return Page(
            rows=pa.RecordBatch.from_pylist(listed, schema=LISTING_SCHEMA),
            prefixes=tuple(row for row in shown if row not in self._keys),
            next_token=shown[-1] if len(rows) > len(shown) else None,
        )


def whole(prefix):
    return Part(root=Location("s3", "b", prefix), prefix=prefix)


async def listed(store, prefix="", *, part=None, concurrency=8, may_split=True):
    listing = Listing(store.fetch, "s3://b/", part or whole(prefix), concurrency=concurrency, may_split=may_split)
    keys = []
    async with aclosing(listing.pages()) as pages:
        async for page in pages:
            keys += page.keys.to_pylist()
    return keys, listing.splits


SEGMENT = st.text(st.sampled_from("ab01=.- ~é"), min_size=1, max_size=3)


KEY = st.lists(SEGMENT, min_size=1, max_size=4).map("/".join)
