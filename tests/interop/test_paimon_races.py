"""Several processes commit the same snapshot id at once: never two winners, and the winner's file is what stands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.laws import examples

_REPOSITORY = Path(__file__).resolve().parents[2]


def race(address: str, rounds: int, *extra: str, processes: int = 2) -> dict[str, list[int]]:
    """Start all racers, wait for them, and hear which rounds each believes to have won."""
    running = {
        f"racer-{number}": subprocess.Popen(
            [sys.executable, "-m", "tests.builders.paimon_racer", address, str(rounds), f"racer-{number}", *extra],
            cwd=_REPOSITORY,
            env=os.environ | {"PYTHONPATH": str(_REPOSITORY)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    }
    answers = {name: process.communicate(timeout=1800)[0] for name, process in running.items()}
    assert all(process.returncode == 0 for process in running.values())
    return {name: json.loads(answer) for name, answer in answers.items()}


def one_winner_each(won: dict[str, list[int]], stored: dict[int, str], rounds: int) -> None:
    winners = Counter(number for rounds_won in won.values() for number in rounds_won)
    assert winners == dict.fromkeys(range(1, rounds + 1), 1)
    assert stored == {number: name for name, rounds_won in won.items() for number in rounds_won}


def test_on_a_local_disk_exactly_one_of_several_processes_wins_each_round(tmp_path: Path) -> None:
    rounds = examples(300, soak=3000)
    won = race(str(tmp_path), rounds, processes=3)
    files = (tmp_path / "snapshot").glob("snapshot-*")
    one_winner_each(won, {int(f.name[9:]): json.loads(f.read_text())["commitUser"] for f in files}, rounds)
    assert not [file for file in (tmp_path / "snapshot").iterdir() if not file.name.startswith("snapshot-")]


def test_on_s3_exactly_one_of_several_processes_wins_each_round(seaweedfs: Any) -> None:
    rounds = examples(150, soak=3000)
    client = seaweedfs.client()
    client.create_bucket(Bucket="races")
    won = race("s3://races/t", rounds, seaweedfs.endpoint_url)
    stored = {}
    for number in range(1, rounds + 1):
        body = client.get_object(Bucket="races", Key=f"t/snapshot/snapshot-{number}")["Body"].read()
        stored[number] = json.loads(body)["commitUser"]
    one_winner_each(won, stored, rounds)
