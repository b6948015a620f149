"""What S3 stores beside objects is counted to the byte, within bounds, and never where the store does not answer."""

from contextlib import aclosing

import pytest
from tests.servers import s3_stub

from lakesweep.model.location import Location
from lakesweep.model.store_rules import LeftoverKind
from lakesweep.storage.s3.client import S3Connection
from lakesweep.storage.s3.rules import S3Leftovers, S3Rules
from lakesweep.storage.s3.settings import S3Options

ROOT = Location("s3", "lake", "acme")
ODD = "acme/t/odd \x01+%é&"
VERSIONS, UPLOADS = LeftoverKind.NONCURRENT_VERSIONS, LeftoverKind.INCOMPLETE_UPLOADS


@pytest.fixture
async def stub(s3_credentials):
    async with s3_stub.s3_stub("lake") as server:
        server.versions["lake"] = [
            ("acme/t/a", b"current"),
            ("acme/t/a", b"older"),
            ("acme/t/a", b"oldest"),
            (ODD, None),
            (ODD, b"deleted"),
            ("acme/u/only", b"current"),
            ("acmeother/a", b"current"),
            ("acmeother/a", b"somebody else's"),
        ]
        server.uploads["lake"] = [("acme/t/big+ file", [5, 6, 7]), ("acme/t/none", []), ("acmeother/big", [100])]
        yield server


async def counted(stub, kind, **given):
    """Files and sizes without the bucket, requests, and why there may be more; None in place of files: not counted."""
    connection = S3Connection(S3Options(endpoint_url=stub.endpoint_url, path_style=True, attempts=1), attempts=1)
    counts = S3Leftovers(connection, ROOT, **given)
    async with aclosing(connection), aclosing(counts.versions() if kind is VERSIONS else counts.uploads()) as found:
        pages = [page async for page in found]
    assert {page.kind for page in pages} == {kind}
    assert all(page.problem is None for page in pages[:-1])
    answered = [page.files for page in pages if page.files is not None]
    files = sorted((path.removeprefix("s3://lake/"), size) for some in answered for path, size in some)
    return files if answered else None, pages[-1].requests, pages[-1].problem


NONCURRENT = sorted([("acme/t/a", 5), ("acme/t/a", 6), (ODD, 7)])
INCOMPLETE = [("acme/t/big+ file", 18), ("acme/t/none", 0)]


@pytest.mark.parametrize("page_size", [1, 2, 1000])
async def test_every_noncurrent_version_below_the_place_is_counted_once(stub, page_size):
    stub.page_size = page_size
    files, requests, problem = await counted(stub, VERSIONS)
    assert (files, problem) == (NONCURRENT, None)
    assert requests == stub.count("versions") == {1: 6, 2: 3, 1000: 1}[page_size]
    assert {request.operation for request in stub.requests} == {"versions"}


@pytest.mark.parametrize("page_size", [1, 2, 1000])
async def test_every_upload_is_counted_once_with_all_of_its_parts(stub, page_size):
    stub.page_size = page_size
    files, requests, problem = await counted(stub, UPLOADS)
    assert (files, problem) == (INCOMPLETE, None)
    assert requests == len(stub.requests) == {1: 2 + 3 + 1, 2: 1 + 2 + 1, 1000: 3}[page_size]


async def test_uploads_with_keys_that_xml_cannot_hold_are_counted(stub):
    stub.uploads["lake"] = [(ODD, [3])]
    assert await counted(stub, UPLOADS) == ([(ODD, 3)], 3, None)


async def test_a_store_that_claims_to_encode_and_does_not_loses_no_upload(stub):
    async def lie(request):
        if request.operation == "uploads":
            body = "<Upload><Key>acme/t/big+ file</Key><UploadId>0</UploadId></Upload><EncodingType>url</EncodingType>"
            return s3_stub.xml(f"<ListMultipartUploadsResult>{body}</ListMultipartUploadsResult>")
        return None

    stub.fault = lie
    assert (await counted(stub, UPLOADS))[0] == [("acme/t/big+ file", 18)]


@pytest.mark.parametrize("most", [1, 2, 5])
async def test_counting_stops_at_its_bound_and_says_so(stub, most):
    stub.page_size = 1
    files, requests, problem = await counted(stub, VERSIONS, most_requests=most)
    assert (len(stub.requests), requests) == (most, most)
    assert problem == f"counting stopped after {most} requests"
    assert set(files) <= set(NONCURRENT)


@pytest.mark.parametrize("most", [1, 2, 3])
async def test_uploads_are_never_asked_about_beyond_the_bound(stub, most):
    files, requests, problem = await counted(stub, UPLOADS, most_requests=most)
    assert len(stub.requests) == requests == min(most, 3)
    assert [path for path, _ in files] == ["acme/t/big+ file", "acme/t/none"]
    assert sum(size for _, size in files) == (0 if most == 1 else 18)
    assert problem is None if most == 3 else "sizes of some are not known: counting stopped after" in problem


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (403, "AccessDenied", "must allow s3:ListBucket"),
        (501, "NotImplemented", "NotImplemented"),
        (200, "", "answers 500"),
    ],
)
@pytest.mark.parametrize("kind", [VERSIONS, UPLOADS])
async def test_a_store_that_does_not_answer_is_reported_with_its_reason(stub, kind, status, code, said):
    async def refuse(_request):
        return s3_stub.error(status, code) if code else s3_stub.web.Response(text="<html>sorry")

    stub.fault = refuse
    files, _, problem = await counted(stub, kind)
    assert files is None
    assert said in problem


async def test_sizes_that_nobody_may_know_leave_the_number_of_uploads(stub):
    async def refuse(request):
        return s3_stub.error(403, "AccessDenied") if request.operation == "parts" else None

    stub.fault = refuse
    files, requests, problem = await counted(stub, UPLOADS)
    assert files == [("acme/t/big+ file", 0), ("acme/t/none", 0)]
    assert requests == 2  # it is not asked again for each of them
    assert "s3:ListMultipartUploadParts" in problem


async def test_an_upload_that_ends_while_it_is_counted_is_left_out(stub):
    async def gone(request):
        done = request.operation == "parts" and request.key == "acme/t/none"
        return s3_stub.error(404, "NoSuchUpload") if done else None

    stub.fault = gone
    assert await counted(stub, UPLOADS) == (INCOMPLETE[:1], 3, None)


@pytest.mark.parametrize("marker", ["", "<NextKeyMarker>acme/t/a</NextKeyMarker>"])
@pytest.mark.parametrize("kind", [VERSIONS, UPLOADS])
async def test_a_store_that_repeats_its_pages_is_not_followed_for_ever(stub, kind, marker):
    name = "ListVersionsResult" if kind is VERSIONS else "ListMultipartUploadsResult"

    async def repeat(_request):
        return s3_stub.xml(f"<{name}><IsTruncated>true</IsTruncated>{marker}</{name}>")

    stub.fault = repeat
    files, requests, problem = await counted(stub, kind)
    assert (files, requests) == ([], 2 if marker else 1)
    assert "not where to continue" in problem


async def test_a_bucket_that_never_kept_versions_is_not_listed_for_them(stub):
    async def rules(request):
        if "versioning" in request.query:
            return s3_stub.xml("<VersioningConfiguration/>")
        return s3_stub.error(404, "NoSuchLifecycleConfiguration") if "lifecycle" in request.query else None

    stub.fault = rules
    asks = S3Rules(S3Options(endpoint_url=stub.endpoint_url, path_style=True, attempts=1))
    async with aclosing(asks), aclosing(asks.leftovers(ROOT)) as pages:
        found = [page async for page in pages]
    assert [(page.kind, len(page.files), page.problem) for page in found] == [(VERSIONS, 0, None), (UPLOADS, 2, None)]
    assert stub.count("versions") == 0
