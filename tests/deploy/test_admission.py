"""The admission policy for executors: it takes what Spark makes from our template, and no pod that reads a Secret."""

from __future__ import annotations

import copy

import pytest
import yaml
from tests.builders.admission import BINDING, POLICY, refusals
from tests.deploy import manifests


@pytest.fixture
def executor(tmp_path):
    """As Spark makes it: the template with the image, the account, its variables and its volumes."""
    rendered = manifests.render("kustomize spark")
    pod = yaml.safe_load(rendered.files["executor.yaml"])
    conf = rendered.settings(tmp_path).engine.spark.conf
    pod["spec"]["serviceAccountName"] = conf["spark.kubernetes.authenticate.executor.serviceAccountName"]
    pod["spec"]["containers"][0]["env"] = [
        {"name": "SPARK_EXECUTOR_ID", "value": "1"},
        {"name": "SPARK_EXECUTOR_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    pod["spec"]["volumes"] += [
        {"name": "spark-conf-volume-exec", "configMap": {"name": "spark-exec-1"}},
        {"name": "scratch", "persistentVolumeClaim": {"claimName": "lakesweep-scratch"}},
        {"name": "spark-local-dir-1", "emptyDir": {}},
    ]
    return pod


@pytest.mark.parametrize("version", [one for one in manifests.VERSIONS if one > "1.30"])
def test_the_policy_is_what_kubernetes_expects(version):
    assert manifests.faults(POLICY, version) == manifests.faults(BINDING, version) == []
    assert BINDING["spec"]["policyName"] == POLICY["metadata"]["name"]
    assert BINDING["spec"]["validationActions"] == ["Deny"]
    assert POLICY["spec"]["failurePolicy"] == "Fail"


def test_the_names_of_the_policy_are_those_of_the_overlay(executor):
    rendered = manifests.render("kustomize spark")
    account = (
        f"system:serviceaccount:{rendered.deployment['metadata']['namespace']}:{rendered.pod['serviceAccountName']}"
    )
    assert account in POLICY["spec"]["matchConditions"][0]["expression"]
    secrets = {one["secretRef"]["name"] for one in executor["spec"]["containers"][0]["envFrom"]}
    assert all(f"'{secret}'" in str(POLICY["spec"]["validations"]) for secret in secrets)


def test_an_executor_of_ours_is_let_through(executor):
    assert refusals(executor) == []


def other_account(spec):
    spec["serviceAccountName"] = "lakesweep"


def no_account(spec):
    del spec["serviceAccountName"]


def token(spec):
    spec["automountServiceAccountToken"] = True


def token_by_default(spec):
    del spec["automountServiceAccountToken"]


def secret_volume(spec):
    spec["volumes"].append({"name": "x", "secret": {"secretName": "lakesweep-state"}})


def projected_volume(spec):
    spec["volumes"].append({"name": "x", "projected": {"sources": [{"secret": {"name": "lakesweep-state"}}]}})


def node_volume(spec):
    spec["volumes"].append({"name": "x", "hostPath": {"path": "/"}})


def all_variables(spec):
    spec["containers"][0]["envFrom"].append({"secretRef": {"name": "lakesweep-s3"}})


def one_variable(spec):
    key = {"name": "lakesweep-state", "key": "url"}
    spec["containers"][0]["env"].append({"name": "X", "valueFrom": {"secretKeyRef": key}})


def second_container(spec):
    spec["containers"].append({"name": "x", "image": "x", "envFrom": [{"secretRef": {"name": "lakesweep-state"}}]})


def init_container(spec):
    spec["initContainers"] = [{"name": "x", "image": "x", "envFrom": [{"secretRef": {"name": "lakesweep-state"}}]}]


def ephemeral_container(spec):
    spec["ephemeralContainers"] = [{"name": "x", "image": "x"}]


TRICKS = (other_account, no_account, token, token_by_default, secret_volume, projected_volume, node_volume,
          all_variables, one_variable, second_container, init_container, ephemeral_container)  # fmt: skip


@pytest.mark.parametrize("trick", TRICKS, ids=lambda trick: trick.__name__)
def test_a_pod_that_would_read_a_secret_is_refused(executor, trick):
    pod = copy.deepcopy(executor)
    trick(pod["spec"])
    assert len(refusals(pod)) == 1
    assert refusals(pod, user="system:serviceaccount:other:other") == []  # whose pods are none of our business


def test_every_rule_of_the_policy_refuses_something(executor):
    said = set()
    for trick in TRICKS:
        pod = copy.deepcopy(executor)
        trick(pod["spec"])
        said.update(refusals(pod))
    assert said == {one["message"] for one in POLICY["spec"]["validations"]}
