"""What is asked again before each batch, on a table that people tag while it is swept."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from tests.builders.paimon_options import once
from tests.builders.paimon_world import World

from lakesweep.formats.paimon.view import PaimonView
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import Outcome

ONE_BY_ONE = CleanupPolicy(
    dry_run=False,
    max_snapshot_age=timedelta(0),
    min_snapshots_to_keep=1,
    batch_size=1,
    max_concurrent_deletions=1,
)


async def test_a_file_deleted_in_one_tag_and_live_in_another_stays(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manifest that was read for the first tag names it as well for the second, and is not read twice."""
    table = world.table
    table.append("b")  # snapshot 1 needs the file that this is about
    table.overwrite("b")  # snapshot 2 has its manifest still, and another one that deletes it
    table.merge()  # and from snapshot 3 on nothing names it any more
    table.append("c")
    for name in "xyz":
        table.stray(name, old=True)  # batches that come before its own

    def tag(number: int) -> None:
        document = json.loads(world.bucket.objects[f"{table.place}/snapshot/snapshot-{number}"].data)
        table.put_json(f"tag/tag-{number}", document)
        table.needs[f"tag/tag-{number}"] = table.needs[f"snapshot/snapshot-{number}"]

    handle = world.handle()
    commit, references = handle.commit_expiry, PaimonView.references
    late = iter([1])

    async def commit_then_tag(*arguments: Any) -> Any:
        answer = await commit(*arguments)
        tag(2)
        return answer

    async def references_then_tag(view: Any, expiring: Any, before: Any = None) -> Any:
        found = await references(view, expiring, before)
        if "tag/tag-2" in table.needs:
            for number in late:
                tag(number)
        return found

    handle.commit_expiry = commit_then_tag  # type: ignore[method-assign]
    monkeypatch.setattr(PaimonView, "references", references_then_tag)
    run = await world.bench.run(handle, ONE_BY_ONE)
    assert run.outcome is Outcome.DONE, run.reason
    assert "tag/tag-1" in table.needs
    assert table.lost() == set()


@pytest.mark.parametrize("branch", ["main", "dev"])
async def test_a_commit_that_comes_while_the_head_is_read_is_in_it(branch: str, world: World) -> None:
    """Snapshots are listed before tags, consumers and schemas, and one may come meanwhile: it is asked for last."""
    world.table.append("a")
    world.table.branch("dev")
    handle = world.handle()
    before = await handle.head()
    world.bucket.faults = once(
        lambda call, address: call == "list" and address.endswith("/schema/"),
        lambda: world.table.append("b", branch=branch),
    )
    meanwhile = await handle.head()
    assert meanwhile != before
    assert meanwhile == await handle.head()
