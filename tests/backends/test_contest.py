"""The measuring contest: who runs when, what counts, and processes of their own."""

import json
from collections.abc import Iterator
from dataclasses import replace

import torch

from headway.backends.contest import FINAL, HEATS, Contest, Lane, run_lanes
from headway.core.backend import Backend, BackendPlacement, Engine
from headway.core.backend_package import installed_backends
from headway.core.program import Instruction, Program, Value

VALUE = Value(shape=(2, 8), stride=(8, 1), dtype="float32")
MATRIX = Value(shape=(8, 8), stride=(8, 1), dtype="float32")


class Runner:
    """Takes the seconds that it was told."""

    deviation = 0.0

    def __init__(self, name: str, seconds: Iterator[float], turns: list[str]) -> None:
        self._name = name
        self._seconds = seconds
        self._turns = turns

    def run_s(self) -> float:
        self._turns.append(self._name)
        return next(self._seconds)

    def close(self) -> None:
        """It holds nothing."""


def every(quiet: float, contended: float, *, one_in: int) -> Iterator[float]:
    number = 0
    while True:
        number += 1
        yield contended if number % one_in == 0 else quiet


def test_contestants_take_turns_and_contended_runs_are_dropped_and_counted() -> None:
    turns: list[str] = []
    lanes = [
        Lane(Runner("a", every(1.0, 1.5, one_in=3), turns)),
        Lane(Runner("b", every(2.0, 2.1, one_in=2), turns)),
    ]
    ticks = iter(range(10_000))
    run_lanes(lanes, FINAL, clock=lambda: float(next(ticks)))
    first, second = (lane.timing(number) for number, lane in enumerate(lanes))
    assert (first.seconds, first.least_s) == (1.0, 1.0)
    assert first.num_repeats >= 20
    assert first.num_contended == (first.num_repeats + 1) // 2
    assert second.num_contended == 0
    assert second.num_repeats == first.num_repeats + first.num_contended
    assert {tuple(sorted(pair)) for pair in zip(turns[::2], turns[1::2], strict=True)} == {("a", "b")}
    assert {turns[at] for at in range(0, len(turns), 2)} == {"a", "b"}


def test_it_ends_where_nothing_is_ever_quiet_enough() -> None:
    """As many runs as are allowed, and the quickest alone counts."""
    falling = Lane(Runner("a", iter([2.0**-number for number in range(200)]), []))
    run_lanes([falling], HEATS, clock=lambda: 0.0)
    assert falling.timing(0).num_repeats == 1
    assert falling.timing(0).num_contended == HEATS.max_runs - 1


def test_one_that_fails_on_the_way_is_named_and_the_others_go_on() -> None:
    def failing() -> Iterator[float]:
        yield from (1.0, 1.0, 1.0)
        raise RuntimeError("out of memory\nand more")

    lanes = [Lane(Runner("a", failing(), [])), Lane(Runner("b", every(1.0, 1.0, one_in=2), []))]
    run_lanes(lanes, HEATS)
    assert lanes[0].timing(0).fault == "RuntimeError: out of memory"
    assert lanes[1].timing(1).num_repeats >= HEATS.min_runs


def placed(backend: Backend, *, trial: int = 1) -> Program:
    """One product, in the final."""
    arguments = json.dumps({"args": [{"value": 0}, {"value": 1}], "kwargs": {}})
    product = Instruction(target="aten.mm.default", arguments=arguments, results=(VALUE,))
    engines = (Engine(backend=backend, positions=(0,)),)
    return Program(
        inputs=(VALUE, MATRIX),
        instructions=(product,),
        results=(2,),
        placement=BackendPlacement(engines=engines, constants=(1,), trial=trial),
    )


def test_finalists_have_a_process_each_and_what_is_missing_is_named() -> None:
    known = {str(backend): backend for backend in installed_backends()}
    gone = replace(known["eager"], name="gone", version="1.0")
    contest = Contest(torch.device("cpu"), memory_bytes=1 << 30, num_threads=1)
    programs = [placed(each) for each in (known["eager"], known["headway"], gone)]
    eager, own, missing = contest.times(programs, first=0)
    for timing in (eager, own):
        assert timing.fault == ""
        assert 0 < timing.least_s <= timing.seconds
        assert timing.num_repeats + timing.num_contended >= FINAL.min_runs
        assert timing.deviation <= 1e-5
    assert missing.fault == "The backend 'gone' is not installed."
