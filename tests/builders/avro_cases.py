"""Random Avro rows with a program that reads some of their columns, and ways to damage them."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st
from tests.builders import avro_rows

from lakesweep.formats.avro_columns import Program, compiled

Blocks = list[tuple[bytes, int]]
Slots = dict[str, tuple[str, ...]]

damages = st.lists(
    st.one_of(
        st.tuples(st.just("change"), st.integers(0, 10**6), st.integers(0, 255)),
        st.tuples(st.just("cut"), st.integers(0, 10**6), st.integers(1, 3)),
        st.tuples(st.just("insert"), st.integers(0, 10**6), st.integers(0, 255)),
        st.tuples(st.just("rows"), st.integers(0, 10**6), st.sampled_from([-1, 1, 2**40])),
    ),
    min_size=1,
    max_size=3,
)


def damaged(blocks: Blocks, damage: list[tuple[str, int, int]]) -> Blocks:
    for how, at, what in damage:
        index = at % len(blocks)
        block, rows = blocks[index]
        place = at // len(blocks) % (len(block) + 1)
        match how:
            case "change":
                changed = block[:place] + bytes([what]) + block[place + 1 :], rows
            case "cut":
                changed = block[:place] + block[place + what :], rows
            case "insert":
                changed = block[:place] + bytes([what]) + block[place:], rows
            case _:
                changed = block, max(0, rows + what)
        blocks = [*blocks[:index], changed, *blocks[index + 1 :]]
    return blocks


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, Slots, Program, Blocks]:
    schema = draw(avro_rows.schemas)
    found = avro_rows.places(schema)
    assume(found)
    chosen = draw(st.lists(st.sampled_from(found), min_size=1, max_size=4, unique=True))
    places = {f"c{index}": path for index, path in enumerate(chosen)}
    dice = random.Random(draw(st.integers(0, 2**32)))
    counts = draw(st.lists(st.integers(1, 12), min_size=1, max_size=3))
    blocks = [(b"".join(avro_rows.encoded(schema, dice) for _ in range(rows)), rows) for rows in counts]
    program = compiled(schema, places)
    assert program is not None
    return schema, places, program, blocks
