"""What test_image.py and its neighbours are made of."""

from __future__ import annotations

from tests.deploy import dockerfile
from tests.deploy.tools import REPOSITORY

DOCKERFILE = REPOSITORY / "Dockerfile"


STAGES = dockerfile.read(DOCKERFILE)


LAST = STAGES[-1]
