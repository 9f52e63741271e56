"""What a result tells about where it was measured."""

import pytest

from benchmarks.machine import describe_machine, portable


def test_machine_is_described_by_what_matters_for_speed() -> None:
    machine = describe_machine()
    assert machine.num_cpus >= 1
    assert machine.memory_bytes > 2**20
    assert machine.cpu
    assert machine.versions["torch"]
    assert machine.date.endswith("+00:00")


@pytest.mark.parametrize(
    ("argument", "kept"), [("/home/me/venv/bin/python", "python"), ("--burst", "--burst"), ("a/b", "a/b")]
)
def test_paths_of_this_machine_are_left_out(argument: str, kept: str) -> None:
    assert portable(argument) == kept
