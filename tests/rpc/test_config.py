"""How a process gets the token that it shares with the others."""

import sys
from pathlib import Path

import pytest

from headway.rpc.config import ProcessConfig, parse_config


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEADWAY_AUTH_TOKEN", "HEADWAY_AUTH_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "auth-token"
    path.write_text("sesame\n")
    return path


def parse(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> ProcessConfig:
    monkeypatch.setattr(sys, "argv", ["headway-router", *arguments])
    return parse_config(ProcessConfig, prog="headway-router")


def refusal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        parse(monkeypatch, *arguments)
    assert caught.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("arguments", [("--auth-token", "sesame"), ("--auth-token=sesame",)])
def test_the_token_is_refused_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    message = refusal(monkeypatch, capsys, *arguments)
    assert message.startswith("headway-router: other users of this machine can read --auth-token")
    assert "HEADWAY_AUTH_TOKEN" in message
    assert "--auth-token-file FILE" in message
    assert "sesame" not in message


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"port: 2020-13-45"])
def test_settings_that_are_no_yaml_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "a.yaml").write_bytes(content)
    assert f"--config {tmp_path / 'a.yaml'}: " in refusal(monkeypatch, capsys, "--config", str(tmp_path / "a.yaml"))


def test_a_file_holds_it(monkeypatch: pytest.MonkeyPatch, token_file: Path) -> None:
    assert parse(monkeypatch, "--auth-token-file", str(token_file)).auth_token == "sesame"


def test_the_environment_comes_before_the_file(monkeypatch: pytest.MonkeyPatch, token_file: Path) -> None:
    monkeypatch.setenv("HEADWAY_AUTH_TOKEN", "mellon")
    assert parse(monkeypatch, "--auth-token-file", str(token_file)).auth_token == "mellon"


def test_without_either_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse(monkeypatch).auth_token is None


def test_a_file_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    message = refusal(monkeypatch, capsys, "--auth-token-file", str(tmp_path / "none"))
    assert f"--auth-token-file {tmp_path / 'none'}: No such file or directory" in message


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_file_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], token_file: Path, text: str
) -> None:
    token_file.write_text(text)
    assert f"--auth-token-file {token_file} is empty" in refusal(
        monkeypatch, capsys, "--auth-token-file", str(token_file)
    )
