"""The token of a stack's internal calls, in its state directory."""

from pathlib import Path

import pytest

from headway.client.stack import default_state_dir
from headway.client.token import TOKEN_FILE, TOKEN_VARIABLE, find_token, make_token, read_token
from headway.core.errors import InvalidArgumentError


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    for name in (TOKEN_VARIABLE, "HEADWAY_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


def test_a_token_is_random_its_owners_and_the_next_stacks_too(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    token = make_token(tmp_path)
    assert (tmp_path / TOKEN_FILE).stat().st_mode & 0o777 == 0o600
    assert read_token(tmp_path) == make_token(tmp_path) == token
    assert make_token(other) != token
    assert len(bytes.fromhex(token)) == 32


def test_one_that_others_could_read_is_replaced(tmp_path: Path) -> None:
    token = make_token(tmp_path)
    (tmp_path / TOKEN_FILE).chmod(0o644)
    assert make_token(tmp_path) != token
    assert (tmp_path / TOKEN_FILE).stat().st_mode & 0o777 == 0o600


def test_that_of_the_environment_is_kept_for_the_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_token(tmp_path)
    monkeypatch.setenv(TOKEN_VARIABLE, "sesame")
    assert make_token(tmp_path) == "sesame"
    monkeypatch.delenv(TOKEN_VARIABLE)
    assert find_token(tmp_path) == "sesame"


@pytest.mark.parametrize("token", ["schlüssel", "a\nb"])
def test_a_token_that_cannot_be_sent_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    with pytest.raises(InvalidArgumentError, match=TOKEN_VARIABLE):
        make_token(tmp_path)


def test_a_state_directory_goes_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_token(tmp_path) is None
    monkeypatch.setenv(TOKEN_VARIABLE, "sesame")
    assert find_token(tmp_path) == "sesame"
    (tmp_path / TOKEN_FILE).write_text("its own\n")
    assert find_token(tmp_path) == "its own"


def test_the_local_stacks_token_is_not_sent_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    default_state_dir().mkdir(parents=True)
    token = make_token(default_state_dir())
    assert find_token() == token
    monkeypatch.setenv("HEADWAY_ENDPOINT", "far:1")
    assert find_token() is None
    monkeypatch.setenv(TOKEN_VARIABLE, "sesame")
    assert find_token() == "sesame"
