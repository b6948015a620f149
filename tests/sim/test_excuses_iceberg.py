"""What the model of Iceberg excuses covers nothing else."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.sim.formats.iceberg import IcebergModel
from tests.sim.world import World


@pytest.fixture
def model() -> IcebergModel:
    found = IcebergModel(World())
    found.table.create()
    found.catalog["db.t"] = found.table
    found.append_by_another_name()
    return found


def looks_damaged(model: IcebergModel) -> bool:
    return "missing_live_files" in model.lasting_reasons


def test_a_file_by_another_name_is_found_in_the_tables_own_place(model):
    assert not looks_damaged(model)


def test_a_file_by_another_name_looks_missing_once_the_table_is_elsewhere(model):
    model.move()
    assert looks_damaged(model)
    model.delete_files()
    assert looks_damaged(model)  # the snapshot before still has it, and stays
    model.world.advance(timedelta(days=400))
    assert not looks_damaged(model)


def test_a_table_that_was_moved_does_not_look_damaged_by_that_alone():
    model = IcebergModel(World())
    model.table.create()
    model.append()
    model.move()
    model.append_by_another_name()
    assert not looks_damaged(model)


def test_no_snapshot_expires_where_nothing_may_be_written(model):
    model.delete_files()
    model.move()
    model.table.properties["write.metadata.path"] = "s3://another-tenant/db/t/metadata"
    model.world.advance(timedelta(days=400))
    assert looks_damaged(model)
