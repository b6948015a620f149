"""Where benchmark tables live: a local directory, or a prefix of a bucket in SeaweedFS. All files are ten days old.

Data files are empty, so a million of them is a matter of names. Names are relative to the place.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

import grpc
import pyarrow as pa
from obstore.store import S3Store
from tests.servers import filer_times, seaweedfs
from tests.servers.seaweedfs import SeaweedFS

AGE = timedelta(days=10)
_UPLOADS = 8
_CREATES_AHEAD = 200


class Place(Protocol):
    """What a table's builder needs of storage."""

    @property
    def address(self) -> str:
        """Of the place itself, with a scheme and without a slash at its end."""
        ...

    def make(self, names: Iterable[str]) -> None:
        """Empty files."""
        ...

    def put(self, files: Iterable[tuple[str, bytes]]) -> None:
        """Files with content."""
        ...

    def get(self, name: str) -> bytes:
        """What a file holds."""
        ...

    def remove(self, names: Iterable[str]) -> None:
        """Delete some files."""
        ...

    def names(self) -> set[str]:
        """Every file that is there now."""
        ...


@dataclass(frozen=True, kw_only=True)
class LocalPlace:
    """A directory."""

    root: Path

    @property
    def address(self) -> str:
        return f"file://{self.root}"

    def make(self, names: Iterable[str]) -> None:
        past = time.time() - AGE.total_seconds()
        known: set[str] = set()
        for name in names:
            path = self._path(name, known)
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
            os.utime(path, (past, past))

    def put(self, files: Iterable[tuple[str, bytes]]) -> None:
        past = time.time() - AGE.total_seconds()
        known: set[str] = set()
        for name, data in files:
            path = self._path(name, known)
            Path(path).write_bytes(data)
            os.utime(path, (past, past))

    def get(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            (self.root / name).unlink()

    def names(self) -> set[str]:
        skip = len(str(self.root)) + 1
        return {f"{folder}/{name}"[skip:] for folder, _, files in os.walk(self.root) for name in files}

    def _path(self, name: str, known: set[str]) -> str:
        path = f"{self.root}/{name}"
        folder = path.rpartition("/")[0]
        if folder not in known:
            Path(folder).mkdir(parents=True, exist_ok=True)
            known.add(folder)
        return path


@dataclass(frozen=True, kw_only=True)
class S3Place:
    """A prefix of a bucket. Empty files are made through the filer, which takes them faster and with any time."""

    server: SeaweedFS
    bucket: str
    prefix: str

    @property
    def address(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    def make(self, names: Iterable[str]) -> None:
        when = datetime.now(UTC) - AGE
        home = f"/buckets/{self.bucket}/{self.prefix}"
        with grpc.insecure_channel(self.server.filer_address) as channel:
            ahead: deque[grpc.Future] = deque()
            for name in names:
                ahead.append(filer_times.create_empty(channel, f"{home}/{name}", when))
                if len(ahead) >= _CREATES_AHEAD:
                    ahead.popleft().result()
            for one in ahead:
                one.result()

    def put(self, files: Iterable[tuple[str, bytes]]) -> None:
        client = self.server.client()

        def upload(file: tuple[str, bytes]) -> None:
            client.put_object(Bucket=self.bucket, Key=f"{self.prefix}/{file[0]}", Body=file[1])

        with ThreadPoolExecutor(_UPLOADS) as pool:
            for _ in pool.map(upload, files):
                pass

    def get(self, name: str) -> bytes:
        answer = self.server.client().get_object(Bucket=self.bucket, Key=f"{self.prefix}/{name}")
        data: bytes = answer["Body"].read()
        return data

    def remove(self, names: Iterable[str]) -> None:
        client = self.server.client()
        for name in names:
            client.delete_object(Bucket=self.bucket, Key=f"{self.prefix}/{name}")

    def names(self) -> set[str]:
        store = S3Store(
            self.bucket,
            endpoint=self.server.endpoint_url,
            region=seaweedfs.REGION,
            access_key_id=seaweedfs.ACCESS_KEY,
            secret_access_key=seaweedfs.SECRET_KEY,
            client_options={"allow_http": True},
        )
        skip = len(self.prefix) + 1
        pages = store.list(f"{self.prefix}/", return_arrow=True, chunk_size=1000)
        return {path[skip:] for page in pages for path in pa.record_batch(page).column("path").to_pylist()}


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Say how long building took: it is no part of any result, but somebody waits for it."""
    start = time.perf_counter()
    yield
    print(f"  {what}: {time.perf_counter() - start:.0f} s", flush=True)
