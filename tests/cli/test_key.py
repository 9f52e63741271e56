"""`headway key` on a real stack: made, used, listed, revoked, and told in the log."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from headway.client.stack import find_stack
from tests.checkpoints import make_checkpoint
from tests.cli.test_real_stack import run

BODY = {"model": "tiny", "prompt": "ab", "max_tokens": 1}


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    model = make_checkpoint(tmp_path_factory.mktemp("models") / "tiny", "llama")
    directory = tmp_path_factory.mktemp("k")
    started = run("up", "--model", str(model), "--port", "0", "--no-profile", "--detach", state_dir=directory)
    assert started.returncode == 0, started.stderr
    yield directory
    assert run("down", state_dir=directory).returncode == 0


def test_a_key_is_made_used_listed_and_revoked(state_dir: Path) -> None:
    def ask(key: str = "") -> int:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return httpx.post(f"{find_stack(state_dir).http_url}/v1/completions", json=BODY, headers=headers).status_code

    assert ask() == 200
    made = run("key", "create", "--tenant", "gold", "--rate", "600", "--expires", "30d", "--json", state_dir=state_dir)
    assert made.returncode == 0, made.stderr
    key = json.loads(made.stdout)
    assert (key["tenant"], key["requests_per_minute"], key["state"]) == ("gold", 600, "active")
    assert 29.9 < (key["expires_at_s"] - key["created_at_s"]) / 86_400 < 30.1
    _until(lambda: ask(key["secret"]) == 200 and ask() == 401)
    listed = run("key", "list", state_dir=state_dir)
    for part in (key["key_id"], "active", "gold", "600", "clients"):
        assert part in listed.stdout
    assert key["secret"] not in listed.stdout
    assert run("key", "revoke", key["key_id"], state_dir=state_dir).returncode == 0
    _until(lambda: ask(key["secret"]) == 401)
    (kept,) = json.loads(run("key", "list", "--json", state_dir=state_dir).stdout)
    assert kept["state"] == "revoked"
    log = (state_dir / "logs" / "controller.log").read_text()
    for told in (f"{key['key_id']} is made for tenant 'gold'", f"{key['key_id']} of tenant 'gold' is revoked"):
        assert told in log
    assert key["secret"] not in log


def test_what_cannot_be_made_is_said(state_dir: Path) -> None:
    for arguments, told in (
        (("create", "--tenant", "a b"), "The tenant is 'a b'"),
        (("revoke", "key-none"), "There is no key 'key-none'"),
    ):
        result = run("key", *arguments, state_dir=state_dir)
        assert result.returncode == 1
        assert told in result.stderr


def _until(is_so: Callable[[], bool]) -> None:
    """Gateways read the keys once a second."""
    deadline_s = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
