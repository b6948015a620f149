"""Several replicas on one PostgreSQL and one S3 server, killed with -9 at random and restarted. Repeatable by seed."""

import random
import time
from collections import defaultdict
from contextlib import ExitStack

import asyncpg
import pytest
from tests.builders.daemons import daemon
from tests.builders.small_lake import LONG_AGO, small_table, to_toml
from tests.servers import seaweedfs as s3
from tests.servers.postgres import running_postgres

BUCKET = "replicas"


@pytest.fixture(scope="module")
def postgres():
    with running_postgres() as server:
        yield server


class Fleet:
    """Three daemons over one lake."""

    def __init__(self, home, database_url, endpoint, *, tables, orphans, seed):
        self.home, self.url, self.seed = home, database_url, seed
        self.random = random.Random(seed)
        self.tables = {f"t{number:03}": small_table(f"t{number}", orphans=orphans) for number in range(tables)}
        self.endpoint = endpoint
        self.replicas = {}
        self.stack = ExitStack()
        self.starts = 0

    def fill(self, server):
        server.create_bucket(f"{BUCKET}{self.seed}")
        client = server.client()
        for name, table in self.tables.items():
            for path, data in table.objects():
                client.put_object(Bucket=f"{BUCKET}{self.seed}", Key=f"lake/{name}/{path}", Body=data)
            for path in table.orphans:
                server.set_mtime(f"{BUCKET}{self.seed}", f"lake/{name}/{path}", LONG_AGO)

    def config(self, replica):
        place = f"s3://{BUCKET}{self.seed}/lake"
        settings = {
            "orphan_cleanup": {"enabled": True, "dry_run": False, "batch_size": 3, "max_concurrent_deletions": 1},
            "service": {"data_dir": str(self.home / replica), "artifacts": f"s3://{BUCKET}{self.seed}/ops"},
            "state": {"url": self.url},
            "storage": {"s3": {"endpoint_url": self.endpoint, "path_style": True, "region": "us-east-1"}},
            "metrics": {"listen": "127.0.0.1:0"},
            "admin": {"listen": "127.0.0.1:0"},
            "daemon": {"max_tables": 2, "lease_seconds": 5, "discovery_seconds": 5},
            "logging": {"format": "json"},
            "tenants": [
                {
                    "id": "acme",
                    "root": place,
                    "datasets": [{"id": "d", "format": "delta", "location": place}],
                }
            ],
        }
        path = self.home / f"{replica}.toml"
        path.write_text(to_toml(settings))
        return path

    def start(self, replica):
        self.starts += 1
        log = self.home / f"{replica}-{self.starts}.log"
        self.replicas[replica] = self.stack.enter_context(daemon(self.config(replica), log, s3.ENVIRONMENT))

    def kill_and_restart(self):
        replica = self.random.choice(sorted(self.replicas))
        self.replicas[replica].process.kill()
        self.replicas[replica].process.wait()
        self.start(replica)

    def left(self, client):
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=f"{BUCKET}{self.seed}", Prefix="lake/")
        return {found["Key"].removeprefix("lake/") for page in pages for found in page.get("Contents", ())}

    def check_live(self, left):
        for name, table in self.tables.items():
            for path in (*table.live, "_delta_log/00000000000000000000.json"):
                assert f"{name}/{path}" in left, f"{name} lost {path}"


async def check_the_journal(url, fleet):
    """No table was ever worked on by two at once: tokens grow from run to run, and each file went once."""
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(
            'SELECT r."table" AS name, r.id, r.started_at, b.number, b.fencing_token, b.deleted, b.state, b."count" '
            "FROM lakesweep_runs r JOIN lakesweep_batches b ON b.run_id = r.id ORDER BY r.started_at, b.number"
        )
        still_open = await connection.fetchval("SELECT count(*) FROM lakesweep_runs WHERE outcome IS NULL")
    finally:
        await connection.close()
    by_table = defaultdict(list)
    for row in rows:
        by_table[row["name"]].append(row)
    for name, batches in by_table.items():
        tokens = {batch["id"]: batch["fencing_token"] for batch in batches}
        assert all(tokens[batch["id"]] == batch["fencing_token"] for batch in batches), name
        in_order = list(dict.fromkeys(batch["id"] for batch in batches))
        assert [tokens[run] for run in in_order] == sorted({tokens[run] for run in in_order}), name
        orphans = len(fleet.tables[name.rpartition("/")[2]].orphans)
        done = sum(batch["deleted"] for batch in batches if batch["state"] == "done")
        begun = sum(batch["count"] for batch in batches if batch["state"] == "intent")
        assert done <= orphans <= done + begun, name
    assert len(by_table) == len(fleet.tables)
    return still_open


async def campaign(home, postgres, server, *, tables, kills, seed):
    url = postgres.url(await postgres.create_database())
    fleet = Fleet(home, url, server.endpoint_url, tables=tables, orphans=12, seed=seed)
    fleet.fill(server)
    client = server.client()
    wanted = {f"{name}/{path}" for name, table in fleet.tables.items() for path in table.orphans}
    with fleet.stack:
        for replica in ("a", "b", "c"):
            fleet.start(replica)
        for _ in range(kills):
            time.sleep(fleet.random.uniform(1.0, 5.0))
            fleet.kill_and_restart()
            fleet.check_live(fleet.left(client))
        survivor = fleet.replicas["a"]
        survivor.until(lambda: not wanted & fleet.left(client), f"seed {seed}: orphans are left")
        fleet.check_live(fleet.left(client))
        for running in fleet.replicas.values():
            assert running.end(15) == 0
    # A run whose process was killed when nothing was left to do stays open until the table's next cycle.
    still_open = await check_the_journal(url, fleet)
    assert still_open <= kills * 2


@pytest.mark.timeout(900)
async def test_three_replicas_killed_at_random_clean_every_table_once(tmp_path, postgres, seaweedfs):
    await campaign(tmp_path, postgres, seaweedfs, tables=20, kills=4, seed=7)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_three_replicas_with_two_hundred_tables(tmp_path, postgres, seaweedfs, seed):
    await campaign(tmp_path, postgres, seaweedfs, tables=200, kills=25, seed=seed)
