"""A place for Spark's intermediate rows that cannot be used: the error names the setting, its value and the cause."""

from __future__ import annotations

import errno

import pytest

from lakesweep.engines.spark.config import SparkConfig
from lakesweep.engines.spark.errors import understood
from lakesweep.engines.spark.scratch import DirectoryScratch, SparkScratch, choose
from lakesweep.engines.spark.session import SessionLost
from lakesweep.model.errors import EngineFailed

NO_SCHEME = """An error occurred while calling o60.getFileSystem.
: org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "foo"
\tat org.apache.hadoop.fs.FileSystem.getFileSystemClass(FileSystem.java:3585)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""
NO_HOST = """An error occurred while calling o61.getFileSystem.
: java.lang.IllegalArgumentException: java.net.UnknownHostException: nohost.invalid
\tat org.apache.hadoop.security.SecurityUtil.buildTokenService(SecurityUtil.java:475)
Caused by: java.net.UnknownHostException: nohost.invalid
\t... 27 more
"""


async def never(_work):
    raise AssertionError("Spark is not asked")


async def works(_work):
    return None


async def opened(scratch, on_spark=never):
    async with scratch.opened(on_spark):
        raise AssertionError("it was opened")


@pytest.mark.parametrize("inner", [False, True])
async def test_a_directory_that_cannot_be_made(tmp_path, inner):
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "x" if inner else tmp_path / "file"
    with pytest.raises(EngineFailed) as failed:
        await opened(DirectoryScratch(parent=place))
    assert str(failed.value).startswith(f"engine.spark.scratch = {place} cannot be used: ")
    assert "Errno" not in str(failed.value)
    with pytest.raises(EngineFailed, match=rf"^{place}, scratch below service\.data_dir, cannot be used: "):
        await opened(choose(SparkConfig(), place, None, None))


@pytest.mark.parametrize(
    ("address", "said", "why"),
    [
        ("foo://x/y", NO_SCHEME, 'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "foo"'),
        ("hdfs://nohost.invalid/y", NO_HOST, "java.net.UnknownHostException: nohost.invalid"),
    ],
)
async def test_a_place_that_spark_cannot_write(address, said, why):
    async def fails(_work):
        raise understood(said)

    with pytest.raises(EngineFailed) as failed:
        await opened(SparkScratch(address=address), fails)
    assert str(failed.value) == f"engine.spark.scratch = {address} cannot be used: {why}"


async def test_a_session_that_is_lost_says_nothing_about_the_place():
    async def lost(_work):
        raise SessionLost("the JVM is gone")

    with pytest.raises(SessionLost):
        await opened(SparkScratch(address="hdfs://x/y"), lost)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), EngineFailed("Spark could not")])
async def test_what_goes_wrong_in_the_plan_is_not_the_places_fault(tmp_path, error):
    for scratch in (DirectoryScratch(parent=tmp_path), SparkScratch(address="hdfs://x/y")):
        with pytest.raises(type(error)) as failed:
            async with scratch.opened(works):
                raise error
        assert failed.value is error
