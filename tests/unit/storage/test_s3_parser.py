"""The list-page parser: exact on good pages, never half-right on bad ones."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote, quote_plus
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesweep.storage.s3.list_parser import DamagedPage, ErrorPage, parse_page

XML_TEXT = st.text(
    st.characters(min_codepoint=0x20, exclude_categories=("Cs",), exclude_characters="\ufffe\uffff"), min_size=1
)
ANY_TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1)


def entry(key: str, *, size: object = 1, time: str = "2026-01-02T03:04:05.678Z", etag: str = "&quot;e&quot;") -> str:
    return (
        f"<Contents><Key>{key}</Key><LastModified>{time}</LastModified><ETag>{etag}</ETag>"
        f"<Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
    )


def page(*parts: str, encoding: str | None = "url", truncated: str = "false", token: str = "") -> bytes:
    said = f"<EncodingType>{encoding}</EncodingType>" if encoding else ""
    following = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>b</Name><Prefix>p/</Prefix>{said}<IsTruncated>{truncated}</IsTruncated>{following}"
        f"{''.join(parts)}</ListBucketResult>"
    ).encode()


@given(st.lists(ANY_TEXT, max_size=20), st.sampled_from([quote_plus, quote, lambda text: quote_plus(text, safe="/")]))
def test_an_encoded_page_gives_back_every_key(keys, encode):
    parsed = parse_page(page(*(entry(encode(key), size=at) for at, key in enumerate(keys))))
    assert parsed.keys.to_pylist() == keys
    assert parsed.rows["size_bytes"].to_pylist() == list(range(len(keys)))


@given(st.lists(XML_TEXT, max_size=20))
def test_a_plain_page_gives_back_every_key(keys):
    parsed = parse_page(page(*(entry(escape(key)) for key in keys), encoding=None))
    assert parsed.keys.to_pylist() == keys


@pytest.mark.parametrize(
    ("written", "encoding", "key"),
    [
        ("a%2520b", "url", "a%20b"),
        ("a%2Bb+c", "url", "a+b c"),
        ("k%3Dv%253Dw", "url", "k=v%3Dw"),
        ("a%20b+c", None, "a%20b+c"),
        ("&amp;lt;", None, "&lt;"),
        ("&amp;quot;&#34;&#x27;&apos;", None, "&quot;\"''"),
        ("%26amp%3B", "url", "&amp;"),
        ("a&#43;b", "url", "a b"),
    ],
)
def test_each_layer_is_decoded_exactly_once(written, encoding, key):
    assert parse_page(page(entry(written), encoding=encoding)).keys.to_pylist() == [key]


def test_every_column_and_the_token_are_read():
    parsed = parse_page(
        page(
            entry("p/a", size=5, etag="&quot;abc-2&quot;"),
            entry("p/b", size=0, etag="&#34;def&#34;"),
            "<CommonPrefixes><Prefix>p/k%3Dv+w/</Prefix></CommonPrefixes>",
            truncated="true",
            token="1/x&amp;y==",
        )
    )
    assert parsed.keys.to_pylist() == ["p/a", "p/b"]
    assert parsed.rows["size_bytes"].to_pylist() == [5, 0]
    assert parsed.rows["modified_at"].to_pylist() == [datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)] * 2
    assert parsed.rows["etag"].to_pylist() == ["abc-2", "def"]
    assert parsed.prefixes == ("p/k=v w/",)
    assert parsed.next_token == "1/x&y=="


def test_columns_may_come_in_another_order_and_indented():
    body = page().replace(
        b"</ListBucketResult>",
        b"\n  <Contents>\n    <Size>7</Size>\n    <Owner><ID>1</ID></Owner>\n    <LastModified>2026-01-02T03:04:05Z"
        b"</LastModified>\n    <Key>a</Key>\n  </Contents>\n</ListBucketResult>\n",
    )
    parsed = parse_page(body)
    (row,) = parsed.rows.to_pylist()
    assert (row["path"], row["size_bytes"], row["etag"]) == ("a", 7, None)


def test_fractions_finer_than_milliseconds_are_rounded_to_the_younger_side():
    parsed = parse_page(page(entry("a", time="2026-01-02T03:04:05.123456789Z")))
    assert parsed.rows["modified_at"].to_pylist() == [datetime(2026, 1, 2, 3, 4, 5, 124000, UTC)]


def test_an_empty_page_is_empty():
    parsed = parse_page(page())
    assert (len(parsed.keys), parsed.prefixes, parsed.next_token) == (0, (), None)


WHOLE = page(entry("p/a"), entry("p/b"), "<CommonPrefixes><Prefix>p/c/</Prefix></CommonPrefixes>")


@given(st.integers(min_value=0, max_value=len(WHOLE) - 1))
def test_a_page_cut_anywhere_is_damaged(length):
    with pytest.raises(DamagedPage):
        parse_page(WHOLE[:length])


@pytest.mark.parametrize(
    "body",
    [
        b"<Error><Code>SlowDown</Code></Error>",
        b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>InternalError</Code></Error>',
        b'\n\n<?xml version="1.0"?><Error xmlns="x"><Code>InternalError</Code></Error>\n',
    ],
)
def test_an_error_in_place_of_a_page_is_seen(body):
    with pytest.raises(ErrorPage):
        parse_page(body)


@pytest.mark.parametrize(
    "body",
    [
        page(entry("a").replace("<Size>1</Size>", ""), entry("b")),
        page(entry("a").replace("<Size>1</Size>", ""), entry("b").replace("<Size>", "<Size>2</Size><Size>")),
        page(entry("a").replace("<LastModified>", "<Modified>"), entry("b")),
        page(entry("a"), entry("b").replace("<ETag>&quot;e&quot;</ETag>", "")),
        page(entry("a"), entry("b").replace("</Contents>", "")),
        page(entry("a", size="many")),
        page(entry("a", size="")),
        page(entry("a", time="yesterday")),
        page(entry("%ff")),
        page(entry("a&#xD800;b")),
        page(entry("a&#1114112;b")),
        page(entry("a&#99999999999999999999;b")),
        page(entry("")),
        page(entry("<![CDATA[a]]>")),
        page("<CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes><CommonPrefixes></CommonPrefixes>"),
        page(entry("a"), truncated="true"),
        page(entry("a"), truncated="perhaps"),
        page(entry("a")).replace(b"<IsTruncated>false</IsTruncated>", b""),
        b"",
        b"<html>a proxy says hello</html>",
    ],
)
def test_a_page_that_does_not_add_up_is_damaged(body):
    with pytest.raises(DamagedPage):
        parse_page(body)
