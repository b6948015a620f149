"""Every command explains itself: what it does, each of its words, and how it ends."""

import re

import pytest
from tests.builders.commands import COMMANDS

each_command = pytest.mark.parametrize("name", sorted(COMMANDS))


def test_all_commands_are_seen():
    assert {"plan", "run", "serve", "audit verify", "token new"} <= set(COMMANDS)


@each_command
def test_every_option_of_a_command_is_explained(name):
    unexplained = [parameter.name for parameter in COMMANDS[name].params if not getattr(parameter, "help", None)]
    assert unexplained == []


@each_command
def test_a_command_s_first_sentence_fits_into_the_list_of_commands(name):
    first = (COMMANDS[name].help or "").partition("\n\n")[0]
    assert re.fullmatch(r"[A-Z][^\n]{10,58}\.", first), first


@each_command
def test_a_command_lists_its_exit_codes(name):
    if name != "demo":  # it deletes nothing of anybody's, so no script asks it
        assert "Exit codes: 0 " in COMMANDS[name].help
