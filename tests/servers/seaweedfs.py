"""A real S3 server for tests: SeaweedFS on loopback, every port explicit, data in a directory of its own.

S3 cannot set the time of an object, so `set_mtime` goes to the filer behind it: look the entry up, change its
time, write it back (see `filer_times`).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import botocore.session
from botocore.config import Config
from tests.peers.ports import free_port
from tests.servers import filer_times

ACCESS_KEY = "lakesweep-test"
SECRET_KEY = "lakesweep-test-secret"
REGION = "us-east-1"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_REGION": REGION,
    "AWS_DEFAULT_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""What a client process finds its keys by."""
READER = {**ENVIRONMENT, "AWS_ACCESS_KEY_ID": "lakesweep-reader", "AWS_SECRET_ACCESS_KEY": "lakesweep-reader-secret"}
"""The same for one that may read and list every bucket, and write only where a name begins with `scratch`."""
_START_SECONDS = 90


@dataclass(frozen=True, kw_only=True)
class SeaweedFS:
    """A running server. Clients need `ENVIRONMENT` besides its endpoint."""

    endpoint_url: str
    filer_address: str
    metrics_url: str

    def client(self, keys: Mapping[str, str] = ENVIRONMENT) -> Any:
        """A plain blocking client, independent of the code under test."""
        return botocore.session.get_session().create_client(
            "s3",
            endpoint_url=self.endpoint_url,
            region_name=REGION,
            aws_access_key_id=keys["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=keys["AWS_SECRET_ACCESS_KEY"],
            config=Config(s3={"addressing_style": "path"}),
        )

    def create_bucket(self, bucket: str) -> None:
        """Make sure that there is such a bucket."""
        client = self.client()
        with suppress(client.exceptions.BucketAlreadyExists, client.exceptions.BucketAlreadyOwnedByYou):
            client.create_bucket(Bucket=bucket)

    def requests(self) -> int:
        """How many S3 requests it has answered so far."""
        with urllib.request.urlopen(self.metrics_url, timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return sum(
            int(float(line.rpartition(" ")[2])) for line in lines if line.startswith("SeaweedFS_s3_request_total{")
        )

    def set_mtime(self, bucket: str, key: str, when: datetime) -> None:
        """Give one object another last-modified time (whole seconds)."""
        filer_times.set_mtime(self.filer_address, f"/buckets/{bucket}/{key}", when)


@contextmanager
def seaweedfs(directory: Path) -> Iterator[SeaweedFS]:
    """Start a server that keeps everything in `directory`; stopped by its process id at the end."""
    directory.mkdir(parents=True, exist_ok=True)
    identities = directory / "identities.json"
    everything = _identity("test", ENVIRONMENT, ["Admin", "Read", "Write", "List", "Tagging"])
    reader = _identity("reader", READER, ["Read", "List", "Write:scratch*"])
    identities.write_text(json.dumps({"identities": [everything, reader]}))
    ports = {name: free_port() for name in ("master", "volume", "filer", "s3")}
    grpc_ports = {name: free_port() for name in ports}
    metrics_port = free_port()
    command = [
        *_die_with_parent(),
        _program(),
        "server",
        f"-dir={directory}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-filer",
        "-s3",
        f"-s3.config={identities}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.localSocket={directory / 's3.sock'}",
        f"-filer.localSocket={directory / 'filer.sock'}",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=64",
        "-volume.max=10000",  # every bucket takes a few
        f"-metricsPort={metrics_port}",
        *(f"-{name}.port={port}" for name, port in ports.items()),
        *(f"-{name}.port.grpc={port}" for name, port in grpc_ports.items()),
    ]
    server = SeaweedFS(
        endpoint_url=f"http://127.0.0.1:{ports['s3']}",
        filer_address=f"127.0.0.1:{grpc_ports['filer']}",
        metrics_url=f"http://127.0.0.1:{metrics_port}/metrics",
    )
    log = directory / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        _await_ready(process, server, log)
        yield server
    finally:
        # The data is thrown away, so nothing is gained by the ten seconds of an orderly shutdown.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _identity(name: str, keys: Mapping[str, str], actions: Sequence[str]) -> dict[str, Any]:
    credentials = [{"accessKey": keys["AWS_ACCESS_KEY_ID"], "secretKey": keys["AWS_SECRET_ACCESS_KEY"]}]
    return {"name": name, "credentials": credentials, "actions": list(actions)}


def _await_ready(process: subprocess.Popen[bytes], server: SeaweedFS, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not _answers(server):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"SeaweedFS did not start:\n{log.read_text(errors='replace')[-4000:]}")
        time.sleep(0.1)


def _program() -> str:
    """`weed` stands beside the interpreter; a virtual environment need not be on the path."""
    beside = Path(sys.executable).parent / "weed"
    return str(beside) if os.access(beside, os.X_OK) else "weed"


def _die_with_parent() -> list[str]:
    """Where the system can, let the server end with the tests even if those are killed."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []


def _answers(server: SeaweedFS) -> bool:
    """Ready means that an object can be written: the volume server has then joined."""
    try:
        with urllib.request.urlopen(server.endpoint_url, timeout=2):
            pass
    except urllib.error.HTTPError:
        pass
    except OSError:
        return False
    probe = server.client()
    with suppress(probe.exceptions.ClientError):
        probe.create_bucket(Bucket="ready")
    try:
        probe.put_object(Bucket="ready", Key="probe", Body=b"x")
    except probe.exceptions.ClientError:
        return False
    return True
