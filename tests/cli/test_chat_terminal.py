"""`headway chat` at a terminal."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.scripted import WORDS, ScriptedService


class Terminal:
    """A `headway chat` with a terminal of its own."""

    def __init__(self, endpoint: str, *, state_home: Path) -> None:
        self._end, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headway.cli", "chat", "--endpoint", endpoint],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "XDG_STATE_HOME": str(state_home), "TERM": "dumb"},
            start_new_session=True,
        )
        os.close(theirs)
        self._seen = b""

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def wait_for(self, text: str) -> None:
        """Reads on until `text` has come, and forgets everything up to its end."""
        while text.encode() not in self._seen:
            self._seen += os.read(self._end, 4096)
        self._seen = self._seen.split(text.encode(), 1)[1]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._end)


@pytest.fixture
def terminal(endpoint: str, tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(endpoint, state_home=tmp_path)
    yield terminal
    terminal.close()


def test_a_question_is_answered_and_exit_leaves(terminal: Terminal, tmp_path: Path) -> None:
    terminal.wait_for("> ")
    terminal.type("Hello\n")
    terminal.wait_for("".join(WORDS))
    terminal.wait_for("> ")
    terminal.type("/exit\n")
    assert terminal.process.wait(timeout=10) == 0
    assert "Hello" in (tmp_path / "headway" / "chat_history").read_text()


def test_ctrl_c_stops_the_answer_and_not_the_chat(terminal: Terminal, service: ScriptedService) -> None:
    service.chat_is_endless = True
    terminal.wait_for("> ")
    terminal.type("Go on\n")
    terminal.wait_for("again again ")
    terminal.process.send_signal(signal.SIGINT)
    terminal.wait_for("[stopped]")
    assert service.cancelled.wait(2)
    terminal.wait_for("> ")
    terminal.type("\x04")
    assert terminal.process.wait(timeout=10) == 0


def test_a_refusal_does_not_end_the_chat(terminal: Terminal, service: ScriptedService) -> None:
    service.models = ("tiny", "large")
    terminal.wait_for("> ")
    terminal.type("Hello\n")
    terminal.wait_for("error: Several models are served.")
    terminal.wait_for("> ")
    service.models = ("tiny",)
    terminal.type("Hello\n")
    terminal.wait_for("".join(WORDS))
