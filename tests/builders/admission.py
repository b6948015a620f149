"""What test_admission.py and its neighbours are made of."""

from __future__ import annotations

import yaml
from tests.deploy.tools import DEPLOY, cel

POLICY, BINDING = yaml.safe_load_all((DEPLOY / "kubernetes/admission/spark-executors.yaml").read_text())


def refusals(pod, user="system:serviceaccount:lakesweep:lakesweep"):
    """What an API server would say of this pod."""
    spec = POLICY["spec"]
    known = {"object": pod, "request": {"userInfo": {"username": user}}}
    if not all(cel().evaluate(one["expression"], known) for one in spec["matchConditions"]):
        return []
    return [one["message"] for one in spec["validations"] if cel().evaluate(one["expression"], known) is not True]
