"""What Spark's workers read is confined like everything else: the bounds travel with the way to the stores."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from lakesweep.daemon.adapters import Adapters
from lakesweep.daemon.clock import SystemClock
from lakesweep.engines.spark import executor
from lakesweep.engines.spark.errors import WorkerFault
from lakesweep.formats import registry as formats
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName
from lakesweep.ports.references import ReferenceSource
from lakesweep.ports.table import MatchBy
from lakesweep.settings.schema import Settings


@pytest.mark.parametrize("address", ["file:///dev/zero", "/etc/shadow", "{home}/umbrella/m.avro", "s3://b/m.avro"])
def test_a_worker_opens_nothing_outside_of_the_root(tmp_path: Path, address: str):
    (tmp_path / "umbrella").mkdir()
    (tmp_path / "umbrella" / "m.avro").write_bytes(b"theirs")
    (tmp_path / "acme").mkdir()
    document = {"service": {"data_dir": str(tmp_path / "state")}, "tenants": [{"id": "a", "root": f"{tmp_path}/acme"}]}
    engine = Adapters(Settings.model_validate(document), SystemClock()).spark("a")
    source = ReferenceSource(
        location=Location.parse(address.format(home=tmp_path)),
        format=FormatName.ICEBERG,
        kind="manifest",
        retained=True,
    )
    open_there = pickle.loads(pickle.dumps(engine._open_storage))
    pieces = executor.Pieces(sources=[executor.save_piece([source])])
    work = executor.reading(open_there, formats.decoder, pieces, MatchBy.ADDRESS, [])
    with pytest.raises(WorkerFault, match="allow_read"):
        list(work(iter([pa.record_batch({"number": pa.array([0])})])))
