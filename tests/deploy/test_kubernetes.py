"""What runs on Kubernetes: taken by its schemas, held to the restricted profile, and read by our own settings code."""

from __future__ import annotations

import copy
import json

import pytest
import yaml
from tests.deploy import manifests
from tests.deploy.dockerfile import read
from tests.deploy.tools import REPOSITORY, helm, kustomize, run

import lakesweep

IMAGE = read(REPOSITORY / "Dockerfile")[-1]
SPARK = ("kustomize spark", "helm spark")


@pytest.fixture(params=manifests.names())
def rendered(request):
    return manifests.render(request.param)


def pods(rendered):
    """Every pod spec there is: the Deployment's, and what Spark makes executors from."""
    found = [rendered.pod]
    if "executor.yaml" in rendered.files:
        found.append(yaml.safe_load(rendered.files["executor.yaml"])["spec"])
    return found


def test_all_the_ways_of_deploying_are_looked_at():
    overlays = {"kustomize replicated", "kustomize sidecar", "kustomize single", "kustomize spark"}
    assert set(manifests.names()) == overlays | {"helm defaults", "helm replicated", "helm spark"}


@pytest.mark.parametrize("version", manifests.VERSIONS)
def test_every_resource_is_what_kubernetes_expects(rendered, version):
    assert [fault for one in rendered.manifests for fault in manifests.faults(one, version)] == []
    if "executor.yaml" in rendered.files:
        template = yaml.safe_load(rendered.files["executor.yaml"])
        template["spec"]["containers"][0]["image"] = "given by Spark"
        assert manifests.faults(template, version) == []


@pytest.mark.parametrize("version", manifests.VERSIONS)
def test_a_broken_manifest_is_noticed(version):
    whole = manifests.render("helm replicated")
    deployment = copy.deepcopy(whole.deployment)
    deployment["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    assert "readinesProbe" in manifests.faults(deployment, version)[0]
    deployment = copy.deepcopy(whole.deployment)
    deployment["spec"]["replicas"] = "three"
    assert "three" in manifests.faults(deployment, version)[0]
    assert (
        "policy/v1beta1"
        in manifests.faults({"apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget"}, version)[0]
    )
    (monitor,) = copy.deepcopy(whole.all("ServiceMonitor"))
    monitor["spec"]["endpoints"][0]["intervall"] = "30s"
    assert "intervall" in manifests.faults(monitor, version)[0]


def test_pods_keep_to_the_restricted_profile(rendered):
    for pod in pods(rendered):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]) == IMAGE.user
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert {kind for volume in pod["volumes"] for kind in volume.keys() - {"name"}} <= {
            "configMap",
            "emptyDir",
            "persistentVolumeClaim",
        }
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}


def test_what_the_image_writes_to_is_mounted(rendered):
    for pod, name in zip(pods(rendered), ("lakesweep", "executor"), strict=False):
        (container,) = [one for one in pod["containers"] if one["name"] == name]
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        assert set(IMAGE.words("VOLUME")) <= mounts.keys()
        assert set(mounts.values()) <= {volume["name"] for volume in pod["volumes"]}


def test_our_own_settings_code_takes_the_file(rendered, tmp_path):
    settings = rendered.settings(tmp_path)
    assert settings.orphan_cleanup.enabled
    assert settings.orphan_cleanup.dry_run
    assert str(settings.service.data_dir) in IMAGE.words("VOLUME")
    if rendered.deployment["spec"]["replicas"] > 1:
        assert settings.state_url.startswith("postgresql://")
        assert settings.artifacts.raw.startswith("s3://")
    else:
        assert settings.state_url.startswith("sqlite:///")
        assert rendered.deployment["spec"]["strategy"] == {"type": "Recreate"}


def test_a_broken_settings_file_is_noticed(tmp_path):
    whole = manifests.render("kustomize single")
    (settings,) = [one for one in copy.deepcopy(whole.manifests) if one["kind"] == "ConfigMap"]
    settings["data"]["lakesweep.toml"] = settings["data"]["lakesweep.toml"].replace("dry_run", "dryrun")
    broken = manifests.Rendered(name="broken", manifests=(whole.deployment, settings))
    with pytest.raises(Exception, match=r"dryrun: unknown setting|did you mean"):
        broken.settings(tmp_path)


def test_a_pod_is_given_longer_than_the_service_takes_to_end(rendered, tmp_path):
    grace = rendered.settings(tmp_path).daemon.shutdown_grace_seconds
    assert rendered.pod["terminationGracePeriodSeconds"] >= grace + 10


def test_probes_and_scrapes_go_to_the_port_the_service_listens_on(rendered, tmp_path):
    host, _, port = rendered.settings(tmp_path).metrics.listen.rpartition(":")
    assert host == "0.0.0.0"
    ports = {one["name"]: one["containerPort"] for one in rendered.container["ports"]}
    assert ports["metrics"] == int(port)
    assert rendered.container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}
    assert rendered.container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}
    for service in rendered.all("Service"):
        assert {one["targetPort"] for one in service["spec"]["ports"]} <= ports.keys()


def test_memory_holds_what_the_settings_allow(rendered, tmp_path):
    settings = rendered.settings(tmp_path)
    size, unit = settings.engine.memory_limit[:-2], settings.engine.memory_limit[-2:]
    joins = float(size) * {"MB": 1e6, "GB": 1e9}[unit] * settings.daemon.max_listings
    driver = settings.engine.spark.conf.get("spark.driver.memory", "0g").removesuffix("g")
    limit = rendered.container["resources"]["limits"]["memory"].removesuffix("Gi")
    assert float(limit) * 2**30 >= joins + float(driver) * 2**30 + 0.5 * 2**30


def test_everything_that_is_referred_to_is_there(rendered):
    names = {
        kind: {one["metadata"]["name"] for one in rendered.all(kind)}
        for kind in ("ConfigMap", "PersistentVolumeClaim", "ServiceAccount")
    }
    for volume in rendered.pod["volumes"]:
        assert volume.get("configMap", {}).get("name") in names["ConfigMap"] | {None}
        assert volume.get("persistentVolumeClaim", {}).get("claimName") in names["PersistentVolumeClaim"] | {None}
    assert rendered.pod.get("serviceAccountName") in names["ServiceAccount"] | {None}
    labels = rendered.deployment["spec"]["template"]["metadata"]["labels"].items()
    assert rendered.deployment["spec"]["selector"]["matchLabels"].items() <= labels
    for service in rendered.all("Service"):
        assert service["spec"]["selector"].items() <= labels
        for monitor in rendered.all("ServiceMonitor"):
            assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    for budget in rendered.all("PodDisruptionBudget"):
        assert budget["spec"]["selector"]["matchLabels"].items() <= labels


def test_no_secret_is_shipped_and_no_power_given_that_is_not_needed(rendered):
    assert rendered.all("Secret") == []
    assert rendered.all("ClusterRole") == rendered.all("ClusterRoleBinding") == []
    with_spark = rendered.name in SPARK
    assert bool(rendered.all("Role")) == bool(rendered.all("RoleBinding")) == with_spark
    assert rendered.pod["automountServiceAccountToken"] is with_spark
    for account in rendered.all("ServiceAccount"):
        assert account["automountServiceAccountToken"] is False
    for role in rendered.all("Role"):
        assert "*" not in json.dumps(role["rules"])
        assert {name for rule in role["rules"] for name in rule["resources"]}.isdisjoint({"secrets", "nodes"})


def test_every_pod_is_behind_a_network_policy(rendered):
    """What no policy selects may talk to everybody, and everybody to it."""
    labels = [rendered.deployment["spec"]["template"]["metadata"]["labels"]]
    if rendered.name in SPARK:
        executor = yaml.safe_load(rendered.files["executor.yaml"])["metadata"]["labels"]
        labels.append({**executor, "spark-role": "executor"})  # which Spark adds
    for pod in labels:
        policies = [
            one["spec"]
            for one in rendered.all("NetworkPolicy")
            if one["spec"]["podSelector"]["matchLabels"].items() <= pod.items()
        ]
        assert policies
        assert {kind for policy in policies for kind in policy["policyTypes"]} == {"Ingress", "Egress"}
        assert all(rule.get("from") for policy in policies for rule in policy["ingress"])
        assert all(rule.get("ports") or rule.get("to") for policy in policies for rule in policy["egress"])


def test_nobody_in_the_cluster_reaches_the_admin_api(rendered, tmp_path):
    ports = {one["name"]: one["containerPort"] for one in rendered.container["ports"]}
    admin = int(rendered.settings(tmp_path).admin.listen.rpartition(":")[2])
    assert admin not in ports.values()
    for policy in rendered.all("NetworkPolicy"):
        for rule in policy["spec"]["ingress"]:
            opened = [(one["port"], one.get("endPort", one["port"])) for one in rule.get("ports", ())]
            assert all(isinstance(low, str) or not low <= admin <= high for low, high in opened)


SPARKS_ROLE = {
    "pods": {"create", "delete", "deletecollection", "get", "list", "patch", "watch"},
    "configmaps": {"create", "deletecollection"},
    "persistentvolumeclaims": {"deletecollection", "list"},
    "services": {"deletecollection", "list"},
}
"""All that it may ever have. Neither secrets, nor a shell or a log of a pod, nor tokens, nor roles."""


@pytest.mark.parametrize("name", SPARK)
def test_sparks_role_reads_no_secret_and_gives_itself_no_power(name):
    rendered = manifests.render(name)
    (role,) = rendered.all("Role")
    assert all(rule["apiGroups"] == [""] for rule in role["rules"])
    given = {resource: set(rule["verbs"]) for rule in role["rules"] for resource in rule["resources"]}
    assert given == SPARKS_ROLE
    (binding,) = rendered.all("RoleBinding")
    assert binding["roleRef"]["kind"] == "Role"
    assert [(one["kind"], one["name"]) for one in binding["subjects"]] == [
        ("ServiceAccount", rendered.pod["serviceAccountName"])
    ]


@pytest.mark.parametrize("name", SPARK)
def test_executors_get_their_own_secret_and_no_token(name, tmp_path):
    rendered = manifests.render(name)
    pod = yaml.safe_load(rendered.files["executor.yaml"])["spec"]
    (container,) = pod["containers"]
    own = {one["secretRef"]["name"] for one in container.get("envFrom", ())}
    services = json.dumps(rendered.container)
    assert all(f'"{name}"' not in services for name in own)
    assert pod["automountServiceAccountToken"] is False
    assert "secret" not in json.dumps(pod["volumes"])
    spark = rendered.settings(tmp_path).engine.spark.conf
    account = spark["spark.kubernetes.authenticate.executor.serviceAccountName"]
    assert account != rendered.pod["serviceAccountName"]
    assert account not in json.dumps(rendered.all("RoleBinding"))


@pytest.mark.parametrize("name", SPARK)
def test_executors_are_the_services_own_image_and_reach_their_driver(name, tmp_path):
    rendered = manifests.render(name)
    spark = rendered.settings(tmp_path).engine.spark
    assert spark.master.startswith("k8s://")
    assert spark.conf["spark.kubernetes.container.image"] == rendered.container["image"]
    assert spark.conf["spark.driver.host"] == "10.0.0.1"
    assert spark.conf["spark.kubernetes.driver.pod.name"] == "pod-1"
    assert spark.conf["spark.pyspark.python"] == "/opt/lakesweep/bin/python"
    ports = {str(one["containerPort"]) for one in rendered.container["ports"]}
    assert {spark.conf["spark.driver.port"], spark.conf["spark.driver.blockManager.port"]} <= ports
    accounts = {one["metadata"]["name"] for one in rendered.all("ServiceAccount")}
    assert spark.conf["spark.kubernetes.authenticate.executor.serviceAccountName"] in accounts
    assert spark.conf["spark.kubernetes.executor.podTemplateFile"] == "/etc/lakesweep/executor.yaml"
    scratch = spark.scratch
    assert "spark.lakesweep.scratch" not in spark.conf  # its former name
    assert scratch in {mount["mountPath"] for mount in rendered.container["volumeMounts"]}
    volume = "spark.kubernetes.executor.volumes.persistentVolumeClaim.scratch"
    assert spark.conf[f"{volume}.mount.path"] == scratch
    claims = {one["metadata"]["name"] for one in rendered.all("PersistentVolumeClaim")}
    assert spark.conf[f"{volume}.options.claimName"] in claims


def test_the_charts_spark_properties_can_be_changed(tmp_path):
    conf = manifests.render("helm spark").settings(tmp_path).engine.spark.conf
    assert (conf["spark.sql.shuffle.partitions"], conf["spark.executor.cores"]) == ("480", "8")


def test_the_chart_leaves_scratch_to_settings_that_name_it(tmp_path):
    for given in ('[engine.spark]\nscratch = "s3://ops/scratch"\n', 'engine.spark.scratch="s3://ops/scratch"\n'):
        values = tmp_path / "values.yaml"
        values.write_text(yaml.safe_dump({"spark": {"enabled": True}, "settings": given}))
        assert manifests.templated("--values", values).settings(tmp_path).engine.spark.scratch == "s3://ops/scratch"
    values.write_text(yaml.safe_dump({"spark": {"enabled": True}, "settings": "# scratch = 1\n"}))
    assert manifests.templated("--values", values).settings(tmp_path).engine.spark.scratch == "/mnt/scratch"


def test_images_have_the_version_of_the_code(rendered):
    assert rendered.container["image"].endswith(f"lakesweep:{lakesweep.__version__}")


def test_the_chart_is_clean_and_has_the_version_of_the_code():
    linted = run(helm(), "lint", "--strict", manifests.CHART)
    assert linted.returncode == 0, linted.stdout
    chart = yaml.safe_load((manifests.CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == lakesweep.__version__


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("replicas=three", "replicas"),
        ("replicas=2", "existingSecret"),
        ("networkPolicy.egressPort=443", "egressPort"),
        ("metrics.port=70000", "metrics.port"),
        ("persistence.size=much", "persistence.size"),
    ],
)
def test_the_chart_refuses_values_that_are_wrong(value, complaint):
    refused = run(helm(), "template", "lake", manifests.CHART, "--set", value)
    assert refused.returncode != 0
    assert complaint in refused.stderr


@pytest.mark.parametrize(
    ("values", "present", "absent"),
    [
        ("networkPolicy.enabled=false,podDisruptionBudget.enabled=false", "Service", "NetworkPolicy"),
        ("serviceAccount.create=false,serviceAccount.name=mine", "Deployment", "ServiceAccount"),
        ("persistence.existingClaim=mine", "Deployment", "PersistentVolumeClaim"),
        ("state.existingSecret=mine,replicas=5", "PodDisruptionBudget", "PersistentVolumeClaim"),
        ("spark.enabled=true,networkPolicy.egressPorts=null", "Role", "Secret"),
        ("metrics.rules.enabled=true", "PrometheusRule", "ServiceMonitor"),
        ("metrics.port=9999,shutdownGraceSeconds=120", "Service", "Role"),
    ],
)
def test_the_charts_values_do_what_they_say(values, present, absent, tmp_path):
    rendered = manifests.templated("--set", values)
    assert [fault for one in rendered.manifests for fault in manifests.faults(one, manifests.VERSIONS[-1])] == []
    assert rendered.all(present)
    assert not rendered.all(absent)
    settings = rendered.settings(tmp_path)
    assert rendered.pod["terminationGracePeriodSeconds"] == settings.daemon.shutdown_grace_seconds + 10
    assert settings.metrics.listen == f"0.0.0.0:{rendered.container['ports'][0]['containerPort']}"


def test_kustomize_refuses_an_overlay_with_a_slip(tmp_path):
    (tmp_path / "kustomization.yaml").write_text("resources: [nothing.yaml]\n")
    assert run(kustomize(), "build", tmp_path).returncode != 0


def test_the_chart_brings_the_rules_and_the_dashboard_that_are_tested():
    rendered = manifests.render("helm replicated")
    (rules,) = rendered.all("PrometheusRule")
    assert rules["spec"] == yaml.safe_load((REPOSITORY / "deploy/prometheus/lakesweep.rules.yaml").read_text())
    (dashboard,) = [one for one in rendered.all("ConfigMap") if "lakesweep.json" in one["data"]]
    assert json.loads(dashboard["data"]["lakesweep.json"])["uid"] == "lakesweep"
