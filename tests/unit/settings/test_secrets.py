import pytest

from lakesweep.settings.secrets import is_secret, mask, mask_text


@pytest.mark.parametrize(
    "name",
    ["token", "credential", "s3.secret-access-key", "s3.access-key-id", "password", "oauth2.client_secret", "api_key"],
)
def test_these_names_hold_secrets(name):
    assert is_secret(name)
    assert mask({"outer": {name: "hush"}}) == {"outer": {name: "***"}}


@pytest.mark.parametrize("name", ["uri", "warehouse", "fencing_token", "table", "s3.endpoint", "reason"])
def test_these_names_do_not(name):
    assert not is_secret(name)
    assert mask({name: "seen"}) == {name: "seen"}


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://user:hush@host/db",
        "cannot open postgresql+asyncpg://user:hush@host:5432/db: refused",
        "token=hush",
        'password = "hush"',
        "{'client_secret': 'hush'}",
        "https://h/x?X-Amz-Signature=hush&b=1",
        "Authorization: Bearer hush-hush-hush",
    ],
)
def test_a_secret_inside_a_text_is_masked(text):
    assert "hush" not in mask_text(text)
    assert "***" in mask_text(text)


@pytest.mark.parametrize("text", ["s3://bucket/a@b/c", "file:///x/y", "mail me@host", "deleted 3 files", "tables: 3"])
def test_an_ordinary_text_stays(text):
    assert mask_text(text) == text


def test_lists_and_nothing_are_walked():
    assert mask({"a": ["token=hush", 1, None], "token": None, "secret": 5}) == {
        "a": ["token=***", 1, None],
        "token": None,
        "secret": "***",
    }
