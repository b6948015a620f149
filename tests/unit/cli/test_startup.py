"""A command imports what it needs and no more: most of a small table's time is spent on imports."""

import subprocess
import sys

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from tests.builders.small_lake import small_table, to_toml, write_local

NEVER = {
    "aiobotocore", "aiohttp", "alembic", "asyncpg", "botocore", "fastapi", "mako", "pandas",
    "pydantic_settings", "pyspark", "requests", "sqlalchemy.ext.asyncio", "starlette", "uvicorn",
}  # fmt: skip
"""Each of these takes longer to import than a small table takes to plan."""

SCRIPT = """
import sys
from lakesweep.cli.main import main
code = main()
print("imported:", *sorted(sys.modules), file=sys.stderr)
sys.exit(code)
"""
IMPORTED = "imported: "


def planned(*arguments, env):
    command = [sys.executable, "-c", SCRIPT, "plan", *map(str, arguments)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    *told, imported = done.stderr.splitlines()
    assert done.returncode == 0, told
    # Nor does a library complain at the very end, behind that line, of objects that nobody took away.
    assert imported.startswith(IMPORTED), imported
    return done.stdout, set(imported.split())


@pytest.fixture
def env(tmp_path):
    return {"XDG_STATE_HOME": str(tmp_path / "state"), "PATH": "/nowhere"}


@pytest.fixture
def delta_table(tmp_path):
    write_local(tmp_path / "t", small_table("t"))
    (tmp_path / "lakesweep.toml").write_text('[storage.local]\nage_by = "modification"')
    return tmp_path / "t"


def test_a_local_plan_imports_nothing_that_it_does_not_need(delta_table, env):
    for _ in ("a new state store", "one that is there"):
        text, imported = planned(delta_table, "--config", delta_table.parent / "lakesweep.toml", env=env)
        assert "3 files" in text
        assert imported & (NEVER | {"pyiceberg", "sqlalchemy.orm"}) == set()


def test_a_plan_through_a_sql_catalog_imports_no_other_catalog(tmp_path, env):
    properties = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/lake"}
    catalog = SqlCatalog("c", **properties)
    catalog.create_namespace("db")
    catalog.create_table("db.t", Schema(NestedField(1, "id", LongType())))
    dataset = {
        "id": "prod",
        "format": "iceberg",
        "namespace": "db",
        "catalog": {"name": "c", "type": "sql", **properties},
    }
    settings = {"tenants": [{"id": "acme", "root": f"file://{tmp_path}/lake", "datasets": [dataset]}]}
    (tmp_path / "lakesweep.toml").write_text(to_toml(settings))
    text, imported = planned("acme/prod/t", "--config", tmp_path / "lakesweep.toml", env=env)
    assert text.startswith("acme/prod/t  iceberg\n")
    assert "pyiceberg.catalog.sql" in imported
    assert imported & (NEVER | {"pyiceberg.catalog.rest"}) == set()


def test_arrow_still_knows_pandas_once_somebody_asks_for_it(env):
    """What Spark does with pandas and Arrow must work after a start that spared both."""
    script = """
import sys
import pyarrow as pa
from lakesweep.cli import startup
startup.begin()
startup.import_arrow()
startup.finish()
assert pa.array(["a", None]).to_pylist() == ["a", None] and "pandas" not in sys.modules
frame = pa.table({"n": [1, 2]}).to_pandas()
assert pa.Table.from_pandas(frame).column("n").to_pylist() == [1, 2]
assert pa.array(frame["n"]).type == pa.int64()
import gc
print(gc.isenabled())
"""
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.skipif("jemalloc" not in pa.supported_memory_backends(), reason="this Arrow was built without jemalloc")
@pytest.mark.parametrize(("chosen", "taken"), [({}, "jemalloc"), ({"ARROW_DEFAULT_MEMORY_POOL": "system"}, "system")])
def test_arrow_uses_the_allocator_that_returns_memory_by_default(env, chosen, taken):
    script = """
import pyarrow as pa
from lakesweep.cli import startup
startup.begin()
startup.import_arrow()
print(pa.default_memory_pool().backend_name)
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=env | chosen, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"{taken}\n", "")


def test_code_that_only_calls_the_command_keeps_its_own_ways(env):
    script = """
import gc, sys
import pyarrow as pa
from lakesweep.cli.main import main
before = pa.default_memory_pool().backend_name
main(["plan", "/nowhere/at/all"])
print(gc.isenabled(), gc.get_freeze_count(), pa.default_memory_pool().backend_name == before)
"""
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "True 0 True\n"
