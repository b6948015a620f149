"""Tables of version 3 in a REST catalog: there the server writes the metadata, so their snapshots expire too."""

import pytest
from tests.builders import spark_iceberg
from tests.interop import judge
from tests.interop.product import everything_old
from tests.peers import aging, oracle
from tests.peers.spark import ON_SPARK, rest_catalog

pytestmark = ON_SPARK


@pytest.fixture(scope="module")
def shared(spark, rest):
    return rest_catalog(spark, "served", uri=rest.uri, warehouse=rest.warehouse)


@pytest.mark.parametrize("name", ["deletion_vectors", "upgraded_to_v3", "statistics", "tags_and_branches"])
async def test_a_run_through_rest_expires_what_iceberg_would(shared, product, name):
    table = spark_iceberg.build(shared, name, namespace=f"served_{name}")
    aging.age(table.root)

    seen = await judge.check_run(table, product(table), everything_old())

    assert seen.run.expired_snapshots
    assert oracle.orphans(table, table.root) == frozenset()
