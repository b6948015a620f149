"""What orchestrators run tables with: in this process, by a command, or through the service's API."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.builders.admin import NOON, ORDERS, RUN_ID, SmallService, served
from tests.builders.small_lake import LocalLake, to_toml

from lakesweep.integrations.client import Client, LakesweepFailed, LakesweepRefused, check
from lakesweep.model.run import CleanupRun, Outcome, Phase


@pytest.fixture
def lake(tmp_path):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["one"])
    lake.add("umbrella", ["two"], ceilings={"files": 1})
    (tmp_path / "lakesweep.toml").write_text(to_toml(lake.settings(logging={"level": "error"})))
    return lake


@pytest.fixture(params=["in this process", "by a command"])
def client(request, lake, tmp_path):
    command = None
    if request.param == "by a command":
        command = str(tmp_path / "lakesweep")
        (tmp_path / "lakesweep").write_text(f'#!/bin/sh\nexec {sys.executable} -m lakesweep "$@"\n')
        (tmp_path / "lakesweep").chmod(0o755)
    return Client(config=str(tmp_path / "lakesweep.toml"), command=command)


def test_tables_are_cleaned_and_each_end_is_reported(client, lake):
    (dry,) = client.run(["acme/d/one"], execute=False, rules={"older_than": timedelta(days=3), "retain_last": None})
    assert (dry.outcome, dry.files) == ("dry_run", 3)
    assert len(lake.orphans_left("acme/d/one")) == 3
    ended = client.run(["acme", "umbrella"], execute=True)
    assert [(one.table, one.outcome) for one in ended] == [("acme/d/one", "done"), ("umbrella/d/two", "refused")]
    assert ended[1].code == "ceiling_files"
    with pytest.raises(LakesweepRefused, match=r"umbrella/d/two: refused.*ceilings.files"):
        check(ended)
    check(ended[:1])
    assert not lake.orphans_left("acme/d/one")


def test_what_cannot_be_found_or_read_fails_with_its_sentence(client, lake):
    with pytest.raises(LakesweepFailed, match="did you mean 'acme'"):
        client.run(["acmee"], execute=False)
    (lake.directory("acme/d/one") / "_delta_log" / "00000000000000000000.json").write_text("{")
    with pytest.raises(LakesweepFailed, match="acme/d/one: failed"):
        check(client.run(["acme"], execute=False))


def test_the_service_does_the_work_and_its_end_is_waited_for(tmp_path):
    service = SmallService(tmp_path)
    asyncio.run(service.seed())
    with served(service) as address:
        client = Client(api=address)

        def finish(_seconds):
            run_id = asyncio.run(service.state.open_runs(ORDERS.label))[0]["run_id"]
            run = CleanupRun(id=run_id, table=ORDERS, location=None, started_at=NOON, phase=Phase.FINISHED)
            asyncio.run(service.state.update_run(replace(run, outcome=Outcome.DONE, finished_at=NOON)))

        (ended,) = client.run([ORDERS.label], execute=True, sleep=finish)
        assert (ended.outcome, ended.link) == ("done", f"{address}/#{ended.run_id}")
        assert client.find(RUN_ID).code == "ceiling_files"
        assert client.last(ORDERS.label) is not None
        assert client.last("acme/prod/nothing") is None
        (again,) = client.run(["acme"], execute=False, sleep=finish)  # the service is asked which tables that names
        assert (again.table, again.outcome) == (ORDERS.label, "done")
        with pytest.raises(LakesweepFailed, match="404"):
            client.run(["acme/prod/nothing"], execute=True)
        with pytest.raises(LakesweepFailed, match=r"no table that the service knows matches 'acme/x\*'"):
            client.run(["acme/x*"], execute=True)
        with pytest.raises(LakesweepFailed, match="leave out grace"):
            client.run([ORDERS.label], execute=True, rules={"grace": timedelta(days=2)})
    with pytest.raises(LakesweepFailed, match="does not answer"):
        client.find(RUN_ID)
    with pytest.raises(LakesweepFailed, match="not an http or https"):
        Client(api="file:///etc/passwd").find(RUN_ID)
