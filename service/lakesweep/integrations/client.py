"""Run or plan tables for an orchestrator, in one of three ways, and report how each ended.

    in this process          lakesweep is installed beside the orchestrator
    command="/opt/…"         a `lakesweep` of another virtualenv, where the pins of both do not agree
    api="https://…"          the running service does the work

Only the standard library is imported here: with the last two ways lakesweep's own dependencies are not installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

POLL_SECONDS = 5.0
_TIMEOUT = 60.0


class LakesweepFailed(Exception):
    """A run failed, or the service could not be reached. The text says why."""


class LakesweepRefused(LakesweepFailed):
    """A guard refused: nothing was changed, and a person should read the reason."""


class _NotStarted(LakesweepFailed):
    def __init__(self, reason: str, code: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How one table's run ended."""

    table: str
    run_id: str
    outcome: str
    """`done`, `dry_run`, `refused` or `failed`."""
    code: str | None
    reason: str | None
    files: int
    bytes: int
    link: str | None = None
    document: dict[str, Any] = field(default_factory=dict, repr=False)

    def sentence(self) -> str:
        files = "1 file" if self.files == 1 else f"{self.files:,} files"
        run = f" (run {self.run_id})" if self.run_id else ""
        what = f"{self.table}: {self.outcome}, {files}, {self.bytes:,} bytes{run}"
        return f"{what}: {self.reason}" if self.reason else what


@dataclass(frozen=True, kw_only=True)
class Client:
    """Where the work is done. Give at most one of `command` and `api`."""

    config: str | None = None
    """A settings file, for work in this process and by a command."""
    command: str | None = None
    api: str | None = None
    token: str | None = field(default=None, repr=False)
    timeout_seconds: float = 24 * 3600.0

    def run(
        self, targets: Sequence[str], *, execute: bool, rules: dict[str, Any] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> list[Ended]:  # fmt: skip
        """Every table that the targets name, each once."""
        rules = {name: value for name, value in (rules or {}).items() if value is not None}
        if self.api is not None:
            if rules:
                raise LakesweepFailed(f"through the API the service's own settings apply: leave out {', '.join(rules)}")
            return [self._by_api(table, execute=execute, sleep=sleep) for table in self._tables(targets)]
        if self.command is not None:
            return self._by_command(targets, execute=execute, rules=rules)
        return self._in_process(targets, execute=execute, rules=rules)

    def find(self, run_id: str) -> Ended:
        """A run of the service as it is now; `outcome` is `running` until its end."""
        return _ended(self._request(f"/api/v1/runs/{run_id}"), self._link(run_id))

    def last(self, table: str, after: datetime | None = None) -> Ended | None:
        """The newest run of one table that the service knows, unless it began before `after`."""
        found = self._request(f"/api/v1/runs?table={urllib.parse.quote(table, safe='')}&limit=1")["runs"]
        if not found or (after is not None and datetime.fromisoformat(found[0]["started_at"]) < after):
            return None
        return _ended(found[0], self._link(found[0]["run_id"]))

    def _in_process(self, targets: Sequence[str], *, execute: bool, rules: dict[str, Any]) -> list[Ended]:
        from lakesweep import api  # noqa: PLC0415 - heavy, and not there in the other ways

        try:
            done = api.run(list(targets), execute=execute, config=self.config, **rules)
        except api.LakesweepError as exc:
            raise LakesweepFailed(str(exc)) from exc
        return [_ended(one.to_dict()) for one in done]

    def _by_command(self, targets: Sequence[str], *, execute: bool, rules: dict[str, Any]) -> list[Ended]:
        arguments = [str(self.command), "run", *targets, "--json", *(["--execute", "--yes"] if execute else [])]
        for name, value in rules.items():
            text = f"{value.total_seconds() / 3600:g}h" if hasattr(value, "total_seconds") else str(value)
            arguments += [f"--{name.replace('_', '-')}", text]
        arguments += ["--config", self.config] if self.config else []
        done = subprocess.run(  # noqa: S603 - the operator's own command
            arguments, capture_output=True, text=True, check=False, timeout=self.timeout_seconds, env=dict(os.environ)
        )
        try:
            tables = json.loads(done.stdout)["tables"]
        except (ValueError, KeyError):
            raise LakesweepFailed(done.stderr.strip() or f"{self.command} exited with code {done.returncode}") from None
        if not tables:
            raise LakesweepFailed(done.stderr.strip() or "no table was found")
        return [_ended(table) for table in tables]

    def _tables(self, targets: Sequence[str]) -> list[str]:
        """The tables that targets name, each once: a run of the service is for one table."""
        found: dict[str, None] = {}
        known: list[str] | None = None
        for target in targets:
            if _is_one_table(target):
                found[target] = None
                continue
            known = self._known() if known is None else known
            matching = [label for label in known if _covers(target, label)]
            if not matching:
                raise LakesweepFailed(f"no table that the service knows matches {target!r}")
            found |= dict.fromkeys(matching)
        return list(found)

    def _known(self) -> list[str]:
        labels: list[str] = []
        after: str | None = ""
        while after is not None:
            page = self._request(f"/api/v1/tables?limit=200&after={urllib.parse.quote(after, safe='')}")
            labels += [table["table"] for table in page["tables"]]
            after = page["next"]
        return labels

    def _by_api(self, target: str, *, execute: bool, sleep: Callable[[float], None]) -> Ended:
        try:
            started = self._request("/api/v1/runs", {"target": target, "execute": execute})
        except _NotStarted as exc:  # such as `busy`: nothing was changed, as with every refusal
            return Ended(table=target, run_id="", outcome="refused", code=exc.code, reason=str(exc), files=0, bytes=0)
        until = time.monotonic() + self.timeout_seconds
        while True:
            now = self.find(started["run_id"])
            if now.outcome != "running":
                return now
            if time.monotonic() > until:
                raise LakesweepFailed(f"{target} did not end within {self.timeout_seconds:g} s (run {now.run_id})")
            sleep(POLL_SECONDS)

    def _request(self, path: str, body: dict[str, Any] | None = None) -> Any:
        if not str(self.api).startswith(("http://", "https://")):
            raise LakesweepFailed(f"api = {self.api!r} is not an http or https address")
        headers = {"accept": "application/json", **({"content-type": "application/json"} if body is not None else {})}
        if self.token:
            headers["authorization"] = f"Bearer {self.token}"
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"{str(self.api).rstrip('/')}{path}", data=data, headers=headers)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310 - checked above
                return json.load(answer)
        except urllib.error.HTTPError as exc:
            raise _problem(exc) from exc
        except OSError as exc:
            raise LakesweepFailed(f"{self.api} does not answer: {exc}") from exc

    def _link(self, run_id: str) -> str:
        return f"{str(self.api).rstrip('/')}/#{run_id}"


def check(ended: Sequence[Ended]) -> None:
    """Raise for the worst outcome: a failure before a refusal."""
    failed = [one for one in ended if one.outcome == "failed"]
    if failed:
        raise LakesweepFailed("; ".join(one.sentence() for one in failed))
    refused = [one for one in ended if one.outcome == "refused"]
    if refused:
        raise LakesweepRefused("; ".join(one.sentence() for one in refused))


def choice(on_refused: str) -> str:
    """A typing mistake must not turn a failure into a skip."""
    if on_refused not in ("skip", "fail"):
        raise ValueError(f'on_refused = {on_refused!r} is neither "skip" nor "fail"')
    return on_refused


def _ended(document: dict[str, Any], link: str | None = None) -> Ended:
    refused = document.get("refused") or {}
    done = document["outcome"] not in (None, "dry_run")
    counted = document["deleted"] if done else document["orphans"]
    return Ended(
        table=document["table"],
        run_id=document["run_id"],
        outcome=str(document["outcome"] or "running"),
        code=refused.get("code"),
        reason=document["reason"],
        files=counted["count"],
        bytes=counted["bytes"],
        link=link,
        document=document,
    )


def _problem(exc: urllib.error.HTTPError) -> LakesweepFailed:
    try:
        problem = json.load(exc)
        reason = str(problem.get("detail") or problem.get("title"))
    except (ValueError, AttributeError):
        return LakesweepFailed(f"status {exc.code}")
    if exc.code in (409, 429) and problem.get("code") not in (None, "settings"):
        return _NotStarted(reason, str(problem["code"]))
    return LakesweepFailed(f"{exc.code}: {reason}")


def _is_one_table(target: str) -> bool:
    return target.count("/") == 2 and not target.endswith("/") and not set(target) & set("*?[")


def _covers(target: str, label: str) -> bool:
    """As on the command line: `acme` means all of a tenant, `acme/prod` all of a dataset."""
    name = target.rstrip("/")
    return any(fnmatchcase(label, pattern) for pattern in (target, f"{name}/*"))
