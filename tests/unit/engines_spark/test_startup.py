"""What is asked before a session starts, and the one sentence for each no."""

import socket

import pytest

from lakesweep.engines import registry
from lakesweep.engines.spark import startup
from lakesweep.engines.spark.config import PATIENCE, SCRATCH, SparkConfig
from lakesweep.model.errors import EngineFailed


def java(directory, says):
    program = directory / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1-ea"])
def test_a_recent_java_will_do(tmp_path, monkeypatch, version):
    program = java(tmp_path, f'openjdk version "{version}" 2025-04-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    startup.check_java()
    assert startup.find_java() == str(program)


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "is 11.0.2"),
        ('java version "1.8.0_202"', "is 8.0_202"),
        ("nothing", "does not report its version"),
    ],
)
def test_any_other_java_will_not(tmp_path, monkeypatch, says, expected):
    java(tmp_path, says)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EngineFailed, match=f"Spark needs Java 17 or newer: .*{expected}"):
        startup.check_java()


def test_no_java_at_all(tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineFailed, match="none found, set JAVA_HOME or put java on the PATH"):
        startup.check_java()
    assert registry.available(SparkConfig()) == ("inprocess",)
    assert registry.available(SparkConfig(remote="sc://there")) == ("inprocess", "spark")


@pytest.mark.parametrize("address", ["local[*]", "local-cluster[2,1,1024]", "yarn"])
def test_an_address_without_a_host_is_not_asked(address):
    assert startup.check_reachable(address) is None
    assert startup._places(address) == []


@pytest.mark.parametrize(
    ("address", "places"),
    [
        ("spark://a:7078,b:7079", [("a", 7078), ("b", 7079)]),
        ("spark://a", [("a", 7077)]),
        ("sc://h", [("h", 15002)]),
        ("sc://h:1/;token=x", [("h", 1)]),
        ("k8s://https://api.example:6443", [("api.example", 6443)]),
        ("k8s://api.example", [("api.example", 443)]),
        ("spark://[::1]:7077", [("::1", 7077)]),
    ],
)
def test_hosts_and_ports_are_found(address, places):
    assert startup._places(address) == places


def test_one_master_of_several_is_enough():
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        good, bad = listening.getsockname()[1], closed.getsockname()[1]
        assert startup.check_reachable(f"spark://127.0.0.1:{bad},127.0.0.1:{good}") is None
        with pytest.raises(EngineFailed, match=f"the Spark master spark://127.0.0.1:{bad} cannot be reached"):
            startup.check_reachable(f"spark://127.0.0.1:{bad}")


def test_our_own_properties_are_kept_from_spark():
    config = registry.spark_config("yarn", None, {SCRATCH: "/mnt/x", PATIENCE: "5", "spark.executor.memory": "4g"})
    assert config.properties == {"spark.executor.memory": "4g"}
    assert (config.scratch, config.patience_seconds, config.local) == ("/mnt/x", 5.0, False)
    assert config == registry.spark_config(
        "yarn", None, {"spark.executor.memory": "4g", PATIENCE: "5", SCRATCH: "/mnt/x"}
    )
