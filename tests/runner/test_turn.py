"""Turns on a shared device: one at a time, in the order in which they were asked for."""

import threading
import time

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headway.runner.turn import FairTurn


class Asker:
    """A thread that asks for the turn, keeps it until it is told to give it back, and ends."""

    def __init__(self, turn: FairTurn) -> None:
        self.has_turn = threading.Event()
        self.may_leave = threading.Event()
        self._turn = turn
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        self.may_leave.set()
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with self._turn.take():
            self.has_turn.set()
            assert self.may_leave.wait(10)


class TurnMachine(RuleBasedStateMachine):
    """Against a plain list: whoever asked first and has not left has the turn, and nobody else."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = FairTurn()
        self.askers: list[Asker] = []

    @rule()
    def ask(self) -> None:
        num_waiting = len(self.turn._gates)
        asker = Asker(self.turn)
        deadline_s = time.monotonic() + 10
        while not asker.has_turn.is_set() and len(self.turn._gates) == num_waiting:  # it is in line
            assert time.monotonic() < deadline_s
        self.askers.append(asker)

    @precondition(lambda self: self.askers)
    @rule()
    def leave(self) -> None:
        self.askers.pop(0).leave()

    @invariant()
    def the_first_has_it(self) -> None:
        if self.askers:
            assert self.askers[0].has_turn.wait(10)
        assert not any(asker.has_turn.is_set() for asker in self.askers[1:])

    def teardown(self) -> None:
        while self.askers:
            self.leave()


TestTurn = TurnMachine.TestCase
TestTurn.settings = settings(max_examples=15, stateful_step_count=12, deadline=None, derandomize=True)


def test_a_turn_is_given_back_when_a_step_fails() -> None:
    turn = FairTurn()
    for _ in range(3):
        with pytest.raises(RuntimeError, match="broken"), turn.take():
            raise RuntimeError("broken")
