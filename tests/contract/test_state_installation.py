"""The installation's key: one for all that share a state store, and never shown."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from lakesweep.settings.effective import digest
from lakesweep.settings.schema import ServiceSettings, Settings
from lakesweep.settings.secrets import MASK, mask
from lakesweep.state.installation_key import derived, installation_key


async def test_notes_are_shared_and_the_newest_stands(store):
    assert await store.recall("clock") is None
    await store.remember("clock", "one")
    await store.remember("clock", "two")
    assert await store.recall("clock") == "two"
    assert await store.secret("clock", "s" * 32) == "s" * 32  # a note is no secret, and no secret a note
    assert await store.recall("clock") == "two"


async def test_only_a_database_server_has_a_clock_of_its_own(store):
    told = await store.server_time()
    assert told is None or abs(told - datetime.now(UTC)) < timedelta(hours=1)


async def test_all_that_share_a_state_store_have_one_key(store):
    keys = await asyncio.gather(*(installation_key(None, store) for _ in range(5)))
    assert len(set(keys)) == 1
    assert len(keys[0]) == 32


async def test_the_key_outlives_the_program(state_backend):
    first = await state_backend.open()
    key = await installation_key(None, first)
    await first.aclose()
    second = await state_backend.open()
    assert await installation_key(None, second) == key
    await second.aclose()


async def test_the_operators_key_comes_before_the_stored_one(store):
    stored = await installation_key(None, store)
    given = await installation_key("k" * 32, store)
    assert given != stored
    assert given == await installation_key("k" * 32, store)


def test_each_purpose_has_a_key_of_its_own():
    assert derived(b"k" * 32, "cache") != derived(b"k" * 32, "audit")


def test_the_key_is_in_no_text_that_people_see():
    settings = Settings(service=ServiceSettings(installation_key="q" * 40))
    assert "q" * 40 not in repr(settings)
    assert mask(settings.model_dump(mode="json"))["service"]["installation_key"] == MASK
    assert digest(settings) == digest(Settings(service=ServiceSettings(installation_key="r" * 40)))
