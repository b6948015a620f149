"""Parse one ListObjectsV2 page into Arrow columns, about thirty times faster than the stock parser.

The stock client parses each page twice and every time stamp by guesswork. This one splits the page at `<` and takes the
columns out in bulk. It therefore checks itself what the stock parser would have noticed: a truncated page, an error
instead of a page, an entry without a size or a time. Such a page is rejected as a whole.

Keys are decoded exactly once: XML entities always, percent signs only if the page says it is URL-encoded."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.ports.storage import LISTING_SCHEMA
from lakesweep.storage.key_encoding import decoded_keys, unescape, unquote_strictly

_END = b"</ListBucketResult>"
_ERROR = re.compile(rb"\s*(<\?xml[^>]*\?>\s*)?<Error[\s>]")
_PREFIXES = re.compile(rb"<CommonPrefixes>\s*<Prefix>([^<]*)</Prefix>\s*</CommonPrefixes>")
_ENTITY = re.compile(r"&(?:#(\d+)|#x([0-9a-fA-F]+)|(amp|lt|gt|quot|apos));")
_COLUMNS = ("Key", "Size", "LastModified", "ETag")
_NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_FREQUENT_ENTITIES = (("&quot;", '"'), ("&#34;", '"'))
"""The most frequent escapes in etags, replaced in bulk. No replacement can become part of another escape."""


class DamagedPage(ValueError):
    """The page is truncated or is not a list response."""


class ErrorPage(ValueError):
    """The body is an error although the status says success."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of a listing."""

    rows: pa.RecordBatch
    """As LISTING_SCHEMA, but with keys instead of addresses."""
    prefixes: tuple[str, ...] = ()
    """Common prefixes, if the request had a delimiter."""
    next_token: str | None = None
    """None on the last page."""

    @property
    def keys(self) -> pa.StringArray:
        return self.rows.column(0)

    def head(self, rows: int) -> Page:
        return Page(rows=self.rows.slice(0, rows))

    def tail(self, start: int) -> Page:
        return replace(self, rows=self.rows.slice(start))

    def is_ascending(self) -> bool:
        """Are the keys in order and unique?"""
        steps = pc.less(self.keys.slice(0, max(len(self.keys) - 1, 0)), self.keys.slice(1))
        ascending: bool = pc.all(steps, min_count=0).as_py()
        return ascending


def parse_page(body: bytes) -> Page:
    """Decode one page, or raise DamagedPage or ErrorPage."""
    if _ERROR.match(body):
        raise ErrorPage
    if not body.rstrip().endswith(_END):
        raise DamagedPage(f"the page of {len(body)} bytes does not end with {_END.decode()}")
    try:
        return _parse(body)
    except DamagedPage:
        raise
    except (ValueError, OverflowError) as exc:
        raise DamagedPage(f"the page has a value that is not a text, number or time: {exc}") from exc


def _parse(body: bytes) -> Page:
    url_encoded = _text(body, b"EncodingType") == "url"
    columns = _columns(body)
    keys = _without_entities(columns["Key"])
    if pc.any(pc.equal(keys, "")).as_py():
        raise DamagedPage("an entry without a key")
    rows = [
        decoded_keys(keys) if url_encoded else keys,
        columns["Size"].cast(pa.int64()),
        _times(columns["LastModified"]),
        pc.ascii_trim(_without_entities(columns["ETag"]), characters='"'),
    ]
    return Page(
        rows=pa.RecordBatch.from_arrays(rows, schema=LISTING_SCHEMA),
        prefixes=_common_prefixes(body, url_encoded=url_encoded),
        next_token=_next_token(body),
    )


def _columns(body: bytes) -> dict[str, pa.StringArray]:
    """The texts of each element, one per `Contents`, in page order."""
    start = body.find(b"<Contents>")
    if start < 0:
        return {name: pa.array([], pa.string()) for name in _COLUMNS}
    # Text cannot contain a bare "<", so every piece is one tag and the text after it.
    entries = body[start:]
    pieces = pc.split_pattern(pa.array([entries], pa.binary()), b"<").values
    opened = _places(pieces, b"Contents>")
    closed = _places(pieces, b"/Contents>")
    if len(opened) != len(closed):
        raise DamagedPage(f"{len(opened)} entries begin and {len(closed)} end")
    columns = {}
    for name in _COLUMNS:
        tag = f"{name}>".encode()
        places = _places(pieces, tag)
        if name == "ETag" and len(places) == 0:  # some stores have none; everything else is required
            columns[name] = pa.nulls(len(opened), pa.string())
            continue
        if len(places) != len(opened):
            raise DamagedPage(f"{len(opened)} entries contain {name} {len(places)} times")
        # One for each entry, and inside that entry: so no value can move into another row.
        if not pc.all(pc.and_(pc.greater(places, opened), pc.less(places, closed))).as_py():
            raise DamagedPage(f"an entry without {name}")
        columns[name] = pc.binary_slice(pieces.take(places), len(tag), len(entries)).cast(pa.string())
    return columns


def _places(pieces: pa.BinaryArray, tag: bytes) -> pa.UInt64Array:
    return pc.indices_nonzero(pc.starts_with(pieces, tag))


def _times(texts: pa.StringArray) -> pa.TimestampArray:
    """ISO 8601 in UTC, as S3 gives it, to milliseconds; finer fractions are rounded up, to the younger side."""
    kind = LISTING_SCHEMA.field("modified_at").type
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        return pc.ceil_temporal(texts.cast(pa.timestamp("ns", "UTC")), unit="millisecond").cast(kind)


def _common_prefixes(body: bytes, *, url_encoded: bool) -> tuple[str, ...]:
    expected = body.count(b"<CommonPrefixes>")
    if not expected:
        return ()
    found = _PREFIXES.findall(body)
    if len(found) != expected:
        raise DamagedPage(f"{expected} common prefixes, {len(found)} of them readable")
    texts = [_resolve_entities(text.decode()) for text in found]
    return tuple(unquote_strictly(text.replace("+", " ")) for text in texts) if url_encoded else tuple(texts)


def _next_token(body: bytes) -> str | None:
    truncated = _text(body, b"IsTruncated")
    if truncated == "false":
        return None
    token = _text(body, b"NextContinuationToken")
    if truncated != "true" or not token:
        raise DamagedPage(f"IsTruncated is {truncated!r} and the continuation token {token!r}")
    return token


def _text(body: bytes, name: bytes) -> str | None:
    start = body.find(b"<" + name + b">")
    if start < 0:
        return None
    start += len(name) + 2
    return _resolve_entities(body[start : body.index(b"<", start)].decode())


def _without_entities(texts: pa.StringArray) -> pa.StringArray:
    return unescape(texts, "&", _FREQUENT_ENTITIES, _resolve_entities)


def _resolve_entities(text: str) -> str:
    return _ENTITY.sub(_character, text)


def _character(entity: re.Match[str]) -> str:
    decimal, hexadecimal, name = entity.groups()
    if name:
        return _NAMED[name]
    return chr(int(decimal) if decimal else int(hexadecimal, 16))
