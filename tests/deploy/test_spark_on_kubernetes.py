"""A table planned by executors that Spark starts as pods: from our settings, our pod template and our entry point.

The cluster is a small stand-in that runs each pod as a read-only container on this machine. What the driver asked of
it is held against the role that we ship.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.builders.admission import refusals
from tests.builders.image import LAST
from tests.deploy import kubernetes_api, manifests
from tests.deploy.container import Container, on_this_machine
from tests.peers.spark import ON_SPARK
from tests.servers.daemon import ORPHANS, make_place

pytestmark = [*ON_SPARK, pytest.mark.soak]

CHANGED = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.port": "0",
    "spark.driver.blockManager.port": "0",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.memoryOverhead": "512m",
    "spark.executor.cores": "1",
    "spark.dynamicAllocation.maxExecutors": "1",
}
"""One machine instead of a cluster, and a small one."""


@pytest.fixture
def image(tmp_path):
    """The image, and what the service and its executors share: the lake and the scratch directory."""
    for name in ("lake", "scratch", "state"):
        (tmp_path / name).mkdir()
    return on_this_machine(tmp_path)


@pytest.fixture
def cluster(tmp_path, image):
    """Pods as containers of the image: what their spec mounts is mounted, what it sets is set."""

    def start(pod, objects):
        (container,) = pod["spec"]["containers"]
        environment = {one["name"]: one.get("value") or from_field(one, pod) for one in container["env"]}
        running = Container(
            root=image.root,
            binds={**image.binds, **at_their_own_places(tmp_path / "lake"), **config_maps(tmp_path, pod, objects)},
            shared=at_their_own_places(tmp_path / "scratch"),
            tmpfs=empty_directories(pod),
        )
        context = pod["spec"]["securityContext"]
        command = running.command(
            *LAST.words("ENTRYPOINT")[2:],
            *container["args"],
            environment=LAST.environment | environment,
            user=(context["runAsUser"], context["runAsGroup"]),
            directory=LAST.last("WORKDIR"),
        )
        with (tmp_path / f"{pod['metadata']['name']}.log").open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    with kubernetes_api.serving(start) as running:
        running.objects["pods", "pod-1"] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "pod-1", "namespace": "lakesweep", "uid": "0"},
            "spec": {"containers": []},
        }
        yield running


def from_field(variable, pod):
    path = variable["valueFrom"]["fieldRef"]["fieldPath"]
    return {"status.podIP": "127.0.0.1", "metadata.name": pod["metadata"]["name"]}[path]


def mounted(pod, kind):
    (container,) = pod["spec"]["containers"]
    volumes = {one["name"]: one[kind] for one in pod["spec"]["volumes"] if kind in one}
    return {
        mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"] if mount["name"] in volumes
    }


def empty_directories(pod):
    return dict.fromkeys(mounted(pod, "emptyDir"), "mode=1777")


def config_maps(directory, pod, objects):
    found = {}
    for place, source in mounted(pod, "configMap").items():
        data = directory / f"{pod['metadata']['name']}-{source['name']}"
        data.mkdir()
        for name, text in objects["configmaps", source["name"]]["data"].items():
            (data / name).write_text(text)
        found[data] = place
    return found


def at_their_own_places(*paths):
    return {path: str(path) for path in paths}


def test_executors_find_the_orphans_with_no_more_power_than_the_role_gives(cluster, image, tmp_path):
    rendered = manifests.render("kustomize spark")
    place = make_place(tmp_path, extra=engine(rendered, cluster.url, tmp_path))
    report = plan(place, image, tmp_path)
    assert report["engine"]["kind"] == "spark"
    assert report["refused"] is None
    found = {Path(file["path"]).name for file in report["orphans"]["files"]}
    assert found == {f"orphan-{number}.parquet" for number in range(ORPHANS["acme"]["orders"])}

    assert ("create", "pods") in cluster.asked
    (role,) = rendered.all("Role")
    allowed = {(verb, resource) for rule in role["rules"] for verb in rule["verbs"] for resource in rule["resources"]}
    assert cluster.asked <= allowed
    assert cluster.pods_given
    assert [refusal for pod in cluster.pods_given for refusal in refusals(pod)] == []


def engine(rendered, url, directory):
    """The settings that we ship for Spark, for this machine."""
    template = directory / "executor.yaml"
    template.write_text(rendered.files["executor.yaml"])
    shipped = rendered.settings(directory).engine.spark
    assert shipped.scratch == "/mnt/scratch"
    scratch = str(directory / "scratch")
    conf = {**shipped.conf, **CHANGED, "spark.kubernetes.executor.podTemplateFile": str(template)}
    conf = {name: scratch if value == shipped.scratch else value for name, value in conf.items()}
    lines = "\n".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in conf.items())
    spark = f'[engine.spark]\nmaster = "k8s://{url}"\nscratch = "{scratch}"'
    return f'[engine]\nkind = "spark"\n{spark}\n[engine.spark.conf]\n{lines}'


def plan(place, image, directory):
    """What `lakesweep plan` says in a container of the image, as its own user."""
    user, group = LAST.user
    subprocess.run(
        ["chown", "-R", f"{user}:{group}", *(directory / name for name in ("lake", "scratch", "state"))], check=True
    )
    service = Container(
        root=image.root,
        binds={**image.binds, **at_their_own_places(place.config, directory / "executor.yaml")},
        shared=at_their_own_places(directory / "lake", directory / "scratch", directory / "state"),
        tmpfs=image.tmpfs,
    )
    done = service.run(
        *LAST.words("ENTRYPOINT")[2:],
        *("plan", "acme/prod/orders", "--json", "--config", str(place.config)),
        environment=LAST.environment,
        user=LAST.user,
        directory=LAST.last("WORKDIR"),
    )
    logs = "".join(log.read_text(errors="replace")[-3000:] for log in directory.glob("*exec*.log"))
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-2000:] + logs
    (table,) = json.loads(done.stdout)["tables"]
    return table
