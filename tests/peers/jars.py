"""Java libraries of the peers, fetched once by Maven coordinates, or from PyPI, and kept in a cache directory.

A set is a directory named by its content, so a changed coordinate never meets an old jar. It appears by one
rename under a file lock: parallel test workers wait for each other, and an interrupted download leaves nothing
that looks complete. Where Maven finds artifacts is the machine's own setting and is never written here.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from xml.sax.saxutils import escape

_HERE = Path(__file__).resolve().parent
_REPOSITORY = _HERE.parents[1]
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_NEEDED = "install Java and Maven (Debian: apt-get install openjdk-17-jdk-headless maven)"


@dataclass(frozen=True, slots=True, kw_only=True)
class JarSet:
    """Coordinates `group:artifact:version[:classifier]`, with or without what they depend on."""

    coordinates: tuple[str, ...] = ()
    transitive: bool = False
    sdist: str | None = None
    """A file beside this one that pins a source distribution of PyPI, which brings them in `deps/lib`."""


SQLITE_JDBC = "org.xerial:sqlite-jdbc:3.53.4.0"

SETS = {
    # Spark's own class path holds everything else these need.
    "iceberg-spark": JarSet(coordinates=("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0", SQLITE_JDBC)),
    "iceberg-s3": JarSet(coordinates=("org.apache.iceberg:iceberg-aws-bundle:1.12.0",)),
    # 1.11.0 is the newest core whose test classes, the reference REST server among them, are published.
    "iceberg-rest": JarSet(
        coordinates=(
            "org.apache.iceberg:iceberg-core:1.11.0",
            "org.apache.iceberg:iceberg-core:1.11.0:tests",
            "org.eclipse.jetty.ee10:jetty-ee10-servlet:12.0.16",
            "org.slf4j:slf4j-simple:2.0.17",
            SQLITE_JDBC,
        ),
        transitive=True,
    ),
    "delta-spark": JarSet(
        coordinates=(
            "io.delta:delta-spark_4.1_2.13:4.4.0",
            "io.delta:delta-storage:4.4.0",
            "io.delta:delta-kernel-api:4.4.0",
            "io.delta:delta-kernel-defaults:4.4.0",
        )
    ),
    # With the Hadoop classes of the installed Spark this bundle is all that Java Paimon needs.
    "paimon": JarSet(coordinates=("org.apache.paimon:paimon-bundle:1.4.2",)),
    # Not all of Flink's parts are published one by one.
    "flink": JarSet(sdist="flink.lock"),
    "iceberg-flink": JarSet(coordinates=("org.apache.iceberg:iceberg-flink-runtime-1.20:1.11.0", SQLITE_JDBC)),
    "paimon-flink": JarSet(coordinates=("org.apache.paimon:paimon-flink-1.20:1.3.1",)),
    "nessie": JarSet(coordinates=("org.projectnessie.nessie:nessie-quarkus:0.99.0:runner",)),
}


def cache_dir() -> Path:
    """Where fetched parts are kept: TEST_CACHE_DIR, or `.cache/jars` in the repository."""
    chosen = os.environ.get("TEST_CACHE_DIR")
    return Path(chosen) if chosen else _REPOSITORY / ".cache" / "jars"


@cache
def jars(name: str) -> tuple[Path, ...]:
    """The jars of one set, fetched if they are not here yet."""
    wanted = SETS[name]
    recipe = _HERE.joinpath(wanted.sdist).read_text() if wanted.sdist else _pom(wanted)
    target = cache_dir() / f"{name}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(target.parent / f".{name}.lock"):
            if not target.is_dir():
                _fetch(name, _unpack if wanted.sdist else _resolve, recipe, target)
    return tuple(sorted(target.glob("*.jar")))


def classpath(*paths: Path) -> str:
    """Joined as `java -cp` wants it."""
    return os.pathsep.join(str(path) for path in paths)


def java() -> str:
    """The Java that runs Spark and compiles the small programs of the peers."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        raise RuntimeError(f"no Java found: {_NEEDED}")
    return found


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield  # closing the file gives the lock back, also when the process dies


def _fetch(name: str, into: Callable[[str, Path], None], recipe: str, target: Path) -> None:
    for leftover in target.parent.glob(f".{target.name}-*"):  # ours alone: the lock is held
        shutil.rmtree(leftover)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        into(recipe, work)
        check(name, work / "jars")
        (work / "jars").rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def check(name: str, directory: Path) -> None:
    """Every jar of a set is the one that `jars.lock` names, and none is missing."""
    pinned = {line.split()[1]: line.split()[0] for line in _HERE.joinpath("jars.lock").read_text().splitlines()}
    wanted = {place: digest for place, digest in pinned.items() if place.startswith(f"{name}/")}
    found = {f"{name}/{jar.name}": hashlib.sha256(jar.read_bytes()).hexdigest() for jar in directory.glob("*.jar")}
    if found != wanted:
        wrong = sorted(place for place in {*found, *wanted} if found.get(place) != wanted.get(place))
        raise RuntimeError(f"these jars are not the ones that jars.lock pins: {', '.join(wrong)}")


def _resolve(pom: str, work: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise RuntimeError(f"no Maven found: {_NEEDED}")
    (work / "pom.xml").write_text(pom)
    _run([maven, "-q", "-B", "-f", str(work / "pom.xml"), _PLUGIN, f"-DoutputDirectory={work / 'jars'}"])


def _unpack(pins: str, work: Path) -> None:
    (work / "pins").write_text(pins)
    pinned = ["--require-hashes", "-r", str(work / "pins")]
    _run([sys.executable, "-m", "pip", "download", "--no-deps", "--no-build-isolation", "-d", str(work), *pinned])
    (work / "jars").mkdir()
    with tarfile.open(next(work.glob("*.tar.gz"))) as archive:
        for member in archive:
            if member.isfile() and fnmatch(member.name, "*/deps/lib/*.jar"):
                member.name = Path(member.name).name
                archive.extract(member, work / "jars", filter="data")


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} could not fetch jars:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


def _pom(jar_set: JarSet) -> str:
    dependencies = "".join(_dependency(text, transitive=jar_set.transitive) for text in jar_set.coordinates)
    return (
        "<project><modelVersion>4.0.0</modelVersion>"
        "<groupId>lakesweep.tests</groupId><artifactId>peers</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )


def _dependency(coordinate: str, *, transitive: bool) -> str:
    group, artifact, version, *classifier = map(escape, coordinate.split(":"))
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        + (f"<classifier>{classifier[0]}</classifier>" if classifier else "")
        + (
            ""
            if transitive
            else "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
        )
        + "</dependency>"
    )


if __name__ == "__main__":
    for wanted in sys.argv[1:] or sorted(SETS):
        found = jars(wanted)
        print(f"{wanted}: {len(found)} jars, {sum(jar.stat().st_size for jar in found) // 2**20} MiB")
