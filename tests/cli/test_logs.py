"""`headway logs`, and the files behind it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway.cli.log_file import LogDirectory, LogFile
from headway.cli.log_line import parse_line
from tests.cli.conftest import Run


def line(time: str, message: str, **fields: str) -> str:
    return json.dumps({"time": time, "level": "info", "service": "x", "message": message, **fields}) + "\n"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    directory = tmp_path / "logs"
    directory.mkdir()
    (directory / "router.log").write_text(
        line("2026-01-01T00:00:01.000Z", "first") + line("2026-01-01T00:00:03.000Z", "third", request_id="r1")
    )
    (directory / "worker-0.log").write_text(
        line("2026-01-01T00:00:02.000Z", "second", request_id="r1-0") + "Segmentation fault\n"
    )
    return directory


def test_lines_are_merged_by_time_and_plain_ones_stay_with_their_neighbour(headway: Run, logs: Path) -> None:
    result = headway("logs", "--state-dir", str(logs.parent))
    words = [text.split()[-1] for text in result.stdout.splitlines()]
    assert words == ["first", "second", "fault", "third"]


def test_only_the_asked_for_lines_are_shown(headway: Run, logs: Path) -> None:
    state = ("--state-dir", str(logs.parent))
    assert headway("logs", "router", *state).stdout.count("\n") == 2
    assert headway("logs", "-n", "1", *state).stdout.endswith("third\n")
    assert headway("logs", "-n", "0", *state).stdout == ""
    of_request = headway("logs", "--request", "r1", "--json", *state).stdout.splitlines()
    assert [json.loads(text)["message"] for text in of_request] == ["second", "third"]


def test_an_unknown_name_is_refused_with_the_known_ones(headway: Run, logs: Path) -> None:
    result = headway("logs", "gateway", "--state-dir", str(logs.parent))
    assert result.returncode == 1
    assert "There are logs of router, worker-0." in result.stderr


def test_following_shows_lines_and_files_that_come_later(logs: Path) -> None:
    command = [sys.executable, "-m", "headway.cli", "logs", "-f", "-n", "1", "--state-dir", str(logs.parent)]
    follower = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    assert follower.stdout is not None
    try:
        first = follower.stdout.readline()  # it follows now
        (logs / "gateway.log").write_text(line("2026-01-01T00:00:04.000Z", "fourth"))
        assert first.endswith("third\n")
        assert follower.stdout.readline().endswith("fourth\n")
    finally:
        follower.kill()
        follower.wait()
        follower.stdout.close()


def test_an_unfinished_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "router.log"
    path.write_text("one\ntw")
    file = LogFile(path)
    assert [text.message for text in file.new_lines()] == ["one"]
    path.write_text("one\ntwo\n")
    assert [text.message for text in file.new_lines()] == ["two"]
    assert list(file.new_lines()) == []


def test_a_file_that_was_replaced_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "router.log"
    path.write_text("a long first line\n")
    directory = LogDirectory(tmp_path, names=("router",))
    assert len(list(directory.new_lines())) == 1
    path.write_text("short\n")
    assert [text.message for text in directory.new_lines()] == ["short"]


def test_what_is_no_json_is_a_message() -> None:
    assert parse_line("{oops", service="router", after="2026").message == "{oops"
    assert parse_line("oops", service="router", after="2026").time == "2026"
