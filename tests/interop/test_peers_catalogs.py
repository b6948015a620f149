"""The catalog servers and the fault proxy, before the product meets them."""

import itertools

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ServiceUnavailableError
from requests.exceptions import ConnectionError as RequestsConnectionError
from tests.peers import jars
from tests.peers.fault_proxy import Act, Fault, fault_proxy
from tests.peers.rest_catalog.server import RestServer

pytestmark = pytest.mark.xdist_group("catalogs")

ROWS = pa.table({"id": [1, 2]})
_numbers = itertools.count(1)


@pytest.fixture
def proxied(rest):
    """The REST server, a table in it, and the same catalog through a proxy."""
    direct = rest.python()
    namespace = f"ns{next(_numbers)}"
    direct.create_namespace(namespace)
    direct.create_table(f"{namespace}.t", ROWS.schema, properties={"commit.retry.num-retries": "0"}).append(ROWS)
    with fault_proxy(rest.uri) as proxy:
        through = RestServer(uri=proxy.uri, warehouse=rest.warehouse).python()
        yield proxy, through.load_table(f"{namespace}.t"), direct.load_table(f"{namespace}.t")


def test_jars_are_fetched_once():
    first = jars.jars("iceberg-spark")
    stamps = [jar.stat().st_mtime_ns for jar in first]
    jars.jars.cache_clear()

    assert jars.jars("iceberg-spark") == first
    assert [jar.stat().st_mtime_ns for jar in first] == stamps


def test_a_request_passes_unchanged_without_a_fault(proxied):
    proxy, table, direct = proxied
    table.append(ROWS)

    assert len(direct.refresh().snapshots()) == 2
    assert [seen.status for seen in proxy.commits()] == [200]


@pytest.mark.parametrize(
    ("status", "error"),
    [(409, CommitFailedException), (500, CommitStateUnknownException), (503, ServiceUnavailableError)],
)
def test_an_injected_error_carries_nothing_out(proxied, status, error):
    proxy, table, direct = proxied
    proxy.inject(Fault(act=Act.ANSWER, status=status))

    with pytest.raises(error):
        table.append(ROWS)
    assert len(direct.refresh().snapshots()) == 1


def test_a_lost_answer_is_a_commit_that_happened(proxied):
    proxy, table, direct = proxied
    proxy.inject(Fault(act=Act.APPLY_THEN_DROP))

    with pytest.raises(RequestsConnectionError):
        table.append(ROWS)
    assert len(direct.refresh().snapshots()) == 2
    assert [seen.status for seen in proxy.commits("add-snapshot")] == [None]


def test_an_error_after_the_commit_is_a_commit_that_happened(proxied):
    proxy, table, direct = proxied
    proxy.inject(Fault(act=Act.APPLY_THEN_ANSWER, status=504))

    with pytest.raises(CommitStateUnknownException):
        table.append(ROWS)
    assert len(direct.refresh().snapshots()) == 2


def test_another_commit_in_between_is_a_real_conflict(proxied):
    proxy, table, direct = proxied
    proxy.inject(Fault(act=Act.PASS, before=lambda: direct.append(ROWS)))

    with pytest.raises(CommitFailedException):
        table.append(ROWS)
    assert len(direct.refresh().snapshots()) == 2
    assert [seen.status for seen in proxy.commits()] == [409]


def test_nessie_keeps_history_to_itself_and_forbids_cleaning(nessie_server):
    catalog = nessie_server.python()
    catalog.create_namespace("peers")
    table = catalog.create_table("peers.t", ROWS.schema)
    for _ in range(3):
        table.append(ROWS)

    loaded = catalog.load_table("peers.t")

    assert len(loaded.snapshots()) == 1
    assert loaded.properties["gc.enabled"] == "false"
    assert any(name.startswith("nessie.") for name in loaded.properties)
    assert loaded.location().startswith(nessie_server.warehouse)
