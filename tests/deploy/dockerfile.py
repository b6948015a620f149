"""Read a Dockerfile far enough to follow it: stages and their instructions, in order."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One FROM and what follows it."""

    name: str | None
    steps: list[tuple[str, str]] = field(default_factory=list)
    """Instruction and the rest of its line, continuations joined."""

    def all(self, instruction: str) -> list[str]:
        """What stands behind every such instruction."""
        return [rest for name, rest in self.steps if name == instruction]

    def last(self, instruction: str) -> str:
        """The one that holds."""
        return self.all(instruction)[-1]

    @property
    def environment(self) -> dict[str, str]:
        """ENV, with $PATH as the base image has it."""
        pairs = [pair.partition("=") for rest in self.all("ENV") for pair in shlex.split(rest)]
        usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return {"PATH": usual} | {name: value.replace("$PATH", usual) for name, _, value in pairs}

    @property
    def user(self) -> tuple[int, int]:
        """Numbers of user and group."""
        user, group = self.last("USER").split(":")
        return int(user), int(group)

    def words(self, instruction: str) -> list[str]:
        """The exec form of CMD, ENTRYPOINT or VOLUME; of HEALTHCHECK what it runs."""
        words: list[str] = json.loads(self.last(instruction)[self.last(instruction).index("[") :])
        return words


def read(path: Path) -> list[Stage]:
    """The stages of a Dockerfile."""
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE)
    stages: list[Stage] = []
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        instruction, _, rest = line.strip().partition(" ")
        if instruction == "FROM":
            stages.append(Stage(name=rest.partition(" AS ")[2] or None))
        elif instruction and stages:
            stages[-1].steps.append((instruction, rest.strip()))
    return stages


def copies(stage: Stage) -> list[tuple[str | None, list[str], str]]:
    """Stage copied from, sources and target of every COPY."""
    found = []
    for rest in stage.all("COPY"):
        words = shlex.split(rest)
        origin = next((word.removeprefix("--from=") for word in words if word.startswith("--from=")), None)
        *sources, target = [word for word in words if not word.startswith("--")]
        found.append((origin, sources, target))
    return found
