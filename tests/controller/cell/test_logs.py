"""Workers' logs on the cell's output."""

import io
from pathlib import Path

from headway.controller.cell.logs import LogCopy


def test_whole_lines_are_copied_once(tmp_path: Path) -> None:
    first, second, output = tmp_path / "a.log", tmp_path / "b.log", io.StringIO()
    logs = LogCopy([first, second], output=output)
    logs.copy()
    first.write_text("one\ntw")
    logs.copy()
    second.write_text("three\n")
    first.write_text("one\ntwo\n")
    logs.copy()
    logs.copy()
    assert output.getvalue() == "one\ntwo\nthree\n"


def test_a_file_that_was_begun_anew_is_read_from_its_start(tmp_path: Path) -> None:
    path, output = tmp_path / "a.log", io.StringIO()
    logs = LogCopy([path], output=output)
    path.write_text("a long line\n")
    logs.copy()
    path.write_text("new\n")
    logs.copy()
    assert output.getvalue() == "a long line\nnew\n"
