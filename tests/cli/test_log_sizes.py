"""Logs that processes hold open while they are rotated."""

from pathlib import Path

from headway.cli.log_file import LogDirectory
from headway.cli.supervisor.log_sizes import rotate_logs


def test_a_log_that_has_outgrown_its_size_is_emptied_under_the_process_that_writes_it(tmp_path: Path) -> None:
    """`supervisor.log`, and the logs of services that never end, grew without end."""
    followed = LogDirectory(tmp_path, names=())
    with (tmp_path / "supervisor.log").open("ab", buffering=0) as writer, (tmp_path / "small.log").open("wb") as small:
        small.write(b"small\n")
        small.flush()
        for number in range(3):
            for line in range(40):
                writer.write(b"%d %d\n" % (number, line))
            assert [line.raw for line in followed.new_lines() if line.service == "supervisor"][-1] == f"{number} 39"
            rotate_logs(tmp_path, max_bytes=100)
            assert list(followed.new_lines()) == []
            assert (tmp_path / "supervisor.log").stat().st_size == 0
            assert (tmp_path / "supervisor.log.1").read_bytes().endswith(b"%d 39\n" % number)
    assert (tmp_path / "small.log").read_bytes() == b"small\n"
    assert not (tmp_path / "small.log.1").exists()


def test_a_log_that_cannot_be_copied_is_emptied_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "full.log").write_bytes(b"x" * 200)
    (tmp_path / "full.log.1").mkdir()
    rotate_logs(tmp_path, max_bytes=100)
    assert (tmp_path / "full.log").stat().st_size == 0
