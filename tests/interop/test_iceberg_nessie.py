"""A Nessie table keeps its history in Nessie: whoever cleans by its metadata alone destroys other branches."""

import pyarrow as pa
import pytest
from tests.interop.product import Product, everything_old

from lakesweep.model.run import Outcome

pytestmark = pytest.mark.xdist_group("catalogs")


async def test_a_nessie_table_is_refused_and_the_reason_names_its_own_cleaner(nessie_server, s3, s3_store, tmp_path):
    catalog = nessie_server.python()
    catalog.create_namespace("cleaned")
    rows = pa.table({"id": [1, 2]})
    table = catalog.create_table("cleaned.t", rows.schema)
    for _ in range(3):
        table.append(rows)
    product = Product(
        data_dir=tmp_path / "state",
        root=nessie_server.warehouse,
        catalog_name="nessie",
        catalog=nessie_server.properties,
        namespace="cleaned",
        storage=s3_store,
    )
    before = [entry["Key"] for entry in s3.client().list_objects_v2(Bucket="lake")["Contents"]]

    for run in (product.plan, product.execute):
        seen = await run("t", everything_old())
        assert seen.run.outcome is Outcome.REFUSED
        assert "Nessie GC" in seen.run.reason

    assert [entry["Key"] for entry in s3.client().list_objects_v2(Bucket="lake")["Contents"]] == before
    assert len(catalog.load_table("cleaned.t").scan().to_arrow()) == 6
