"""Directories in any file system that Spark knows, through the driver in this process. Blocking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def make_directory(session: SparkSession, address: str) -> float:
    """Create a directory. Returns its creation time by the file system's clock, in seconds."""
    files, path = _file_system(session, address)
    files.mkdirs(path)
    return float(files.getFileStatus(path).getModificationTime()) / 1000


def directories(session: SparkSession, address: str) -> list[tuple[str, float]]:
    """The names of the directories directly below it, and when each was last changed."""
    files, path = _file_system(session, address)
    found = [status for status in files.listStatus(path) if status.isDirectory()]
    return [(status.getPath().getName(), status.getModificationTime() / 1000) for status in found]


def remove_directory(session: SparkSession, address: str) -> None:
    """Remove a directory with everything in it."""
    files, path = _file_system(session, address)
    files.delete(path, True)


def _file_system(session: SparkSession, address: str) -> tuple[Any, Any]:
    context: Any = session.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(address)  # noqa: SLF001  # pyspark has no other way
    return path.getFileSystem(context._jsc.hadoopConfiguration()), path  # noqa: SLF001  # as above
