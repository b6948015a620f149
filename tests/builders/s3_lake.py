"""Delta tables in a bucket of a real S3 server, for tests of clusters that share nothing else with the service."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from deltalake import write_deltalake

STRAY = "part-00000-00000000-0000-0000-0000-000000000000-c000.snappy.parquet"


class S3Lake:
    """Delta tables in a bucket, each with a file beside it that nothing names."""

    def __init__(self, server, work, bucket):
        self._server, self._bucket, self._work = server, bucket, work
        self.bucket, self.endpoint_url = bucket, server.endpoint_url
        server.create_bucket(bucket)
        server.create_bucket(self.scratch_bucket)
        self.add("events")

    def add(self, name, *, appends=3):
        """One more table."""
        for number in range(appends):
            rows = pa.table({"id": pa.array(range(number * 10, number * 10 + 10), pa.int64())})
            write_deltalake(self._work / name, rows, mode="append")
        for path in sorted((self._work / name).rglob("*")):
            if path.is_file():
                self.put(f"acme/{name}/{path.relative_to(self._work / name)}", path.read_bytes())
        self.litter(name)

    def say_size(self, name, files):
        """What Spark writes beside a commit: by this number `auto` chooses the engine."""
        (newest,) = sorted((self._work / name / "_delta_log").glob("*.json"))[-1:]
        self.put(f"acme/{name}/_delta_log/{newest.stem}.crc", json.dumps({"numFiles": files}).encode())

    def litter(self, name="events"):
        """A file that nothing names, and long ago."""
        self.put(f"acme/{name}/{STRAY}", b"stray")
        old = datetime.now(UTC).replace(microsecond=0) - timedelta(days=30)
        self._server.set_mtime(self._bucket, f"acme/{name}/{STRAY}", old)

    def keys(self, name="events"):
        found = self._server.client().list_objects_v2(Bucket=self._bucket, Prefix=f"acme/{name}/")
        return {one["Key"].removeprefix(f"acme/{name}/") for one in found["Contents"]}

    @property
    def scratch_bucket(self):
        """Where executors may write."""
        return f"scratch-{self._bucket}"

    @property
    def scratch(self):
        """A location there."""
        return f"s3://{self.scratch_bucket}/plans"

    def in_scratch(self, phase=""):
        """Objects of plans under way."""
        found = self._server.client().list_objects_v2(Bucket=self.scratch_bucket).get("Contents", ())
        return [one["Key"] for one in found if f"/{phase}" in f"/{one['Key']}"]

    def clear_scratch(self, phase):
        """What somebody else's lifecycle rule does who means well."""
        for key in self.in_scratch(phase):
            self._server.client().delete_object(Bucket=self.scratch_bucket, Key=key)

    def tables(self):
        """The sections of the settings that say where the store and the tables are."""
        lines = [
            "[storage.s3]",
            f'endpoint_url = "{self._server.endpoint_url}"',
            'region = "us-east-1"',
            "path_style = true",
            "[[tenants]]",
            'id = "acme"',
            f'root = "s3://{self._bucket}/acme/"',
            "[[tenants.datasets]]",
            'id = "prod"',
            'format = "delta"',
            f'location = "s3://{self._bucket}/acme/"',
        ]
        return "\n".join(lines)

    def settings(self, work, lines):
        """A file as an operator writes it."""
        path = work / "lakesweep.toml"
        path.write_text("\n".join([f'service.data_dir = "{work}/state"', *lines, self.tables()]))
        return path

    def put(self, key, data):
        """One object."""
        self._server.client().put_object(Bucket=self._bucket, Key=key, Body=data)


def wait_for(condition, seconds=300):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)
