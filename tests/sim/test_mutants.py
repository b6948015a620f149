"""Every mutant of the catalogue still opens its hole: its targets are in the product, and what it writes compiles."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.sim import hunt, mutants

AT_LEAST = 80


@pytest.mark.parametrize("mutant", mutants.catalogue().values(), ids=lambda one: one.name)
def test_a_mutant_applies(mutant):
    changed = mutants.mutated(mutant)
    assert changed
    for module, source in changed.items():
        assert source != mutants.source_path(module).read_text()


def test_there_are_enough_mutants():
    assert len(mutants.catalogue()) >= AT_LEAST
    assert {story for one in mutants.catalogue().values() for story in one.stories} == {*mutants.ALL, *mutants.SERVICE}


def test_a_story_that_found_a_mutant_is_one_that_is_told_for_it():
    numbers = {name: hunt.known_number(mutants.catalogue()[name]) for name in hunt.known()}
    assert [name for name, number in numbers.items() if number is None or number >= hunt.STORIES] == []


def test_a_mutant_whose_target_is_gone_says_so():
    gone = mutants.hole("gone", "", "delta", mutants.edit("lakesweep.cleanup.guards", "cutoff", "no such text", ""))
    with pytest.raises(mutants.Rotten, match="no such text"):
        mutants.mutated(gone)


def test_an_installed_mutant_is_what_others_import():
    program = (
        "from tests.sim import mutants\n"
        "mutants.install(mutants.catalogue()['clocks-may-disagree'])\n"
        "from lakesweep.cleanup.guards import check_clock\n"
        "print(check_clock(None, None, None))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"


def test_a_mutant_that_comes_too_late_says_so():
    import lakesweep.cleanup.guards  # noqa: F401, PLC0415 - it is the point

    with pytest.raises(mutants.Rotten, match="was imported before"):
        mutants.install(mutants.catalogue()["clocks-may-disagree"])


def test_a_mutant_opens_its_hole_in_functions_that_are_imported_already():
    program = (
        "from lakesweep.cleanup.guards import check_clock\n"
        "from tests.sim import mutants\n"
        "mutants.apply(mutants.catalogue()['clocks-may-disagree'])\n"
        "print(check_clock(None, None, None))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"


def test_every_mutant_can_be_applied_to_what_is_imported():
    program = (
        "import os\n"
        "from tests.sim import hunt, mutants\n"
        "hunt.import_all()\n"
        "for one in mutants.catalogue().values():\n"
        "    if not mutants.needs_import(one) and not os.fork():\n"
        "        mutants.apply(one)\n"
        "        os._exit(0)\n"
        "    elif not mutants.needs_import(one) and os.wait()[1]:\n"
        "        print(one.name)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_processes_that_hunt_at_once_do_not_share_their_plans():
    program = (
        "import os\n"
        "from tests.sim.product import _scratch\n"
        "if os.fork():\n"
        "    os.wait()\n"
        "print(_scratch(), flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert len(set(done.stdout.split())) == 2


def test_a_hunt_imports_the_product_only_with_its_mutant():
    code = "import sys, tests.sim.hunt; print(sorted(name for name in sys.modules if name.startswith('lakesweep')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
