"""What a bucket's rules mean, and that not being allowed to ask stops nothing and is said once."""

from contextlib import aclosing

import pytest
from structlog.testing import capture_logs
from tests.servers import s3_stub

from lakesweep.model.location import Location
from lakesweep.model.store_rules import UNKNOWN, BucketRules, LifecycleRule, StoreRules, Versioning, at, of_all
from lakesweep.storage.s3.rules import REMEMBERED_SECONDS, S3Rules
from lakesweep.storage.s3.settings import S3Options

TABLE = Location("s3", "lake", "acme/t")
ON = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
NONCURRENT = "<NoncurrentVersionExpiration><NoncurrentDays>9</NoncurrentDays>{}</NoncurrentVersionExpiration>"


@pytest.fixture
async def stub(s3_credentials):
    async with s3_stub.s3_stub("lake") as server:
        yield server


def answering(stub, *, versioning=ON, lifecycle=None):
    """The bucket's rules; without a lifecycle there is none."""

    async def answer(request):
        if "versioning" in request.query:
            return s3_stub.xml(versioning) if versioning else s3_stub.error(403, "AccessDenied")
        if "lifecycle" in request.query:
            if lifecycle is None:
                return s3_stub.error(404, "NoSuchLifecycleConfiguration")
            rules = lifecycle and f"<LifecycleConfiguration>{lifecycle}</LifecycleConfiguration>"
            return s3_stub.xml(rules) if rules else s3_stub.error(403, "AccessDenied")
        return None

    stub.fault = answer


def opened(stub, **given):
    return aclosing(S3Rules(S3Options(endpoint_url=stub.endpoint_url, path_style=True, attempts=1), **given))


def rule(inside, *, status="Enabled", chosen="<Filter><Prefix>acme/</Prefix></Filter>"):
    return f"<Rule><ID>r</ID><Status>{status}</Status>{chosen}{inside}</Rule>"


async def test_a_missing_permission_is_said_once_and_means_unknown(stub):
    answering(stub, versioning="", lifecycle="")
    now = [0.0]
    with capture_logs() as logs:
        async with opened(stub, monotonic=lambda: now[0]) as rules:
            assert await rules.rules(TABLE) == UNKNOWN
            now[0] += REMEMBERED_SECONDS + 1
            assert await rules.rules(TABLE) == UNKNOWN
    told = [(one["event"], one["needs"]) for one in logs if one["log_level"] == "warning"]
    assert told == [
        ("bucket_rules_unknown", "s3:GetBucketVersioning"),
        ("bucket_rules_unknown", "s3:GetLifecycleConfiguration"),
    ]


async def test_a_bucket_is_asked_once_an_hour(stub):
    answering(stub)
    now = [0.0]
    async with opened(stub, monotonic=lambda: now[0]) as rules:
        for _ in range(3):
            await rules.rules(TABLE)
        assert len(stub.requests) == 2
        now[0] += REMEMBERED_SECONDS + 1
        await rules.rules(TABLE)
    assert len(stub.requests) == 4


@pytest.mark.parametrize(
    ("lifecycle", "days"),
    [
        (rule(NONCURRENT.format("")), 9),
        (rule(NONCURRENT.format(""), chosen="<Filter/>"), 9),
        (rule(NONCURRENT.format(""), chosen="<Prefix>acme/t/</Prefix>"), 9),
        (rule(NONCURRENT.format(""), chosen="<Prefix>acme/t/data/</Prefix>"), None),
        (rule(NONCURRENT.format(""), chosen="<Filter><Prefix>other/</Prefix></Filter>"), None),
        (rule(NONCURRENT.format(""), chosen="<Filter><Tag><Key>a</Key><Value>b</Value></Tag></Filter>"), None),
        (rule(NONCURRENT.format(""), status="Disabled"), None),
        (rule(NONCURRENT.format("<NewerNoncurrentVersions>1</NewerNoncurrentVersions>")), None),
        (rule("<Expiration><Days>1</Days></Expiration>"), None),
    ],
)
async def test_only_a_rule_that_frees_all_below_the_table_counts(stub, lifecycle, days):
    answering(stub, lifecycle=lifecycle)
    async with opened(stub) as rules:
        found = await rules.rules(TABLE)
    assert (found.noncurrent_days, found.warning is None) == (days, days is not None)


async def test_incomplete_uploads_that_a_rule_ends_are_reported(stub):
    abort = (
        "<AbortIncompleteMultipartUpload><DaysAfterInitiation>3</DaysAfterInitiation></AbortIncompleteMultipartUpload>"
    )
    answering(stub, versioning="<VersioningConfiguration/>", lifecycle=rule(abort))
    async with opened(stub) as rules:
        assert await rules.rules(TABLE) == StoreRules(versioning=Versioning.OFF, abort_uploads_days=3)


def test_a_lifecycle_that_is_not_known_gives_no_warning():
    assert at(TABLE, BucketRules(versioning=Versioning.ON, lifecycle=None)).warning is None
    assert at(TABLE, BucketRules(versioning=Versioning.SUSPENDED, lifecycle=())).warning is not None


def test_of_several_places_the_one_that_keeps_most_speaks():
    plain, kept = (at(TABLE, BucketRules(versioning=one, lifecycle=())) for one in (Versioning.OFF, Versioning.ON))
    ending = at(TABLE, BucketRules(versioning=Versioning.ON, lifecycle=(LifecycleRule(noncurrent_days=1),)))
    assert of_all([plain, ending, kept]) == kept
    assert of_all([plain, ending]) == ending
    assert of_all([]) == UNKNOWN
