"""What `make dist` builds can be installed where there is no compiler, and plans a table right after."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from tests.builders.small_lake import small_table, write_local
from tests.builders.stores import AGED_BY_MTIME

ROOT = Path(__file__).parents[2]
NOTEBOOK = """
import asyncio, sys
import lakesweep
found = lakesweep.plan(sys.argv[1])

async def cell():  # a notebook's cell runs inside an event loop
    return lakesweep.plan(sys.argv[1]), await lakesweep.aplan(sys.argv[1])

inside, awaited = asyncio.run(cell())
assert found.summary == inside.summary == awaited.summary
assert found._repr_html_()
from lakesweep.telemetry import compiled
print(found.summary.files, len([part for part in compiled.PARTS if compiled.is_there(part)]), lakesweep.__file__)
"""


ICEBERG = """
import asyncio, sys
from pathlib import Path
import lakesweep, pyarrow
from pyiceberg.catalog.sql import SqlCatalog
place = Path(sys.argv[1])
place.mkdir()
catalog = SqlCatalog("lake", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")
catalog.create_namespace("db")
table = catalog.create_table("db.t", pyarrow.schema([("id", pyarrow.int64())]))
table.append(pyarrow.table({"id": [1, 2]}))

async def cell():
    return lakesweep.plan(table)

plan = asyncio.run(cell())
print(plan.summary.files, plan.refused, plan.to_dict()["format"])
"""


def built(out: Path, *words: str, umask: int = 0o022, **environment: str) -> dict[str, bytes]:
    command = [sys.executable, ROOT / ".ci/dist", out, *words]
    subprocess.run(command, check=True, capture_output=True, umask=umask, env=os.environ | environment)
    return {path.name: path.read_bytes() for path in out.iterdir()}


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    if not shutil.which("git") or not (ROOT / ".git").exists():
        pytest.skip("a release is built from a commit")
    out = tmp_path_factory.mktemp("dist")
    built(out, "--plain")
    return out


def clean_environment(place: Path, *, borrowed: bool) -> tuple[Path, dict[str, str]]:
    """A virtual environment on a machine without a compiler; or one that borrows the dependencies of this one."""
    venv.create(place, with_pip=not borrowed)
    if borrowed:  # a line of a .pth file adds a directory, and not the editable install inside
        site = next(place.glob("lib/python*/site-packages"))
        (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    environment = {
        "PATH": f"{place}/bin",
        "HOME": str(place),
        "CC": "no-compiler-here",
        "LC_ALL": "C.UTF-8",
        **AGED_BY_MTIME,
    }
    return place / "bin/python", environment


def plans(python: Path, environment: dict[str, str], table: Path) -> tuple[int, int, Path]:
    write_local(table, small_table("t"))
    done = subprocess.run(
        [python, "-c", NOTEBOOK, table], env=environment, cwd=table.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    files, parts, place = done.stdout.split()
    return int(files), int(parts), Path(place)


def test_two_builds_of_a_commit_have_the_same_bytes(dist, tmp_path):
    first = {path.name: path.read_bytes() for path in dist.iterdir()}
    assert {name.partition("-")[0] for name in first} == {"lakesweep"}
    assert {name.rpartition("-")[2] for name in first} == {"any.whl", next(n for n in first if n.endswith("gz"))[10:]}
    strict = built(tmp_path / "strict", "--plain", umask=0o077, TZ="Asia/Tokyo", LC_ALL="C", PYTHONHASHSEED="1")
    assert strict == first
    assert built(tmp_path / "loose", "--plain", umask=0o002) == first


@pytest.mark.parametrize("kind", ["*-py3-none-any.whl", "*.tar.gz"])
def test_without_a_compiler_the_installed_package_plans_a_table(dist, tmp_path, kind):
    """Its dependencies are those of this environment: `test_everything…` installs them too."""
    (file,) = dist.glob(kind)
    python, environment = clean_environment(tmp_path / "clean", borrowed=True)
    install = ["-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index", file]
    subprocess.run([python, *install], env=environment, check=True, capture_output=True)
    files, parts, place = plans(python, environment, tmp_path / "t")
    assert (files, parts) == (3, 0)
    assert place.is_relative_to(tmp_path)


def test_the_plain_wheel_has_nothing_of_one_machine_in_it(dist):
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        assert not [name for name in names if name.endswith((".so", ".c", ".pyx", ".pxi"))]
        assert "lakesweep/storage/local/unlink_plain.py" in names
        (metadata,) = [name for name in names if name.endswith(".dist-info/WHEEL")]
        assert b"Root-Is-Purelib: true" in packed.read(metadata)


@pytest.mark.soak
@pytest.mark.timeout(3600)  # two builds and two whole installations, a gigabyte each
def test_everything_installs_from_wheels_into_a_clean_environment(tmp_path):
    """With a network: `make dist`, then all dependencies from the index, without a compiler. Twice the same bytes."""
    made = []
    for umask in (0o022, 0o077):
        shutil.rmtree(ROOT / "dist", ignore_errors=True)
        subprocess.run(["make", "dist"], cwd=ROOT, check=True, capture_output=True, umask=umask)
        made.append({path.name: path.read_bytes() for path in (ROOT / "dist").iterdir()})
    assert made[0] == made[1]
    assert len(made[0]) == 3
    for number, kind in enumerate(["*-manylinux*.whl", "*-py3-none-any.whl"]):
        (file,) = (ROOT / "dist").glob(kind)
        python, environment = clean_environment(tmp_path / str(number), borrowed=False)
        environment |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_"))}
        subprocess.run([python, "-m", "pip", "install", "-q", file], env=environment, check=True, capture_output=True)
        files, parts, _ = plans(python, environment, tmp_path / f"t{number}")
        assert (files, parts) == (3, 0 if "none-any" in kind else 3)
        words = [python, "-c", ICEBERG, tmp_path / f"iceberg{number}"]
        done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.stdout.split() == ["0", "None", "iceberg"], done.stderr
