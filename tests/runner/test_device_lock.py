"""Turns on a shared device: one at a time, in the order in which they were asked for."""

import threading
import time

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headway.runner.device_lock import FairDeviceLock


class Asker:
    """A thread that asks for the lock, holds it until it is told to give it back, and ends."""

    def __init__(self, device_lock: FairDeviceLock) -> None:
        self.has_lock = threading.Event()
        self.may_leave = threading.Event()
        self._device_lock = device_lock
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        self.may_leave.set()
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with self._device_lock.hold():
            self.has_lock.set()
            assert self.may_leave.wait(10)


class DeviceLockMachine(RuleBasedStateMachine):
    """Against a plain list: whoever asked first and has not left has the lock, and nobody else."""

    def __init__(self) -> None:
        super().__init__()
        self.device_lock = FairDeviceLock()
        self.askers: list[Asker] = []

    @rule()
    def ask(self) -> None:
        num_waiting = len(self.device_lock._gates)
        asker = Asker(self.device_lock)
        deadline_s = time.monotonic() + 10
        while not asker.has_lock.is_set() and len(self.device_lock._gates) == num_waiting:  # it is in line
            assert time.monotonic() < deadline_s
        self.askers.append(asker)

    @precondition(lambda self: self.askers)
    @rule()
    def leave(self) -> None:
        self.askers.pop(0).leave()

    @invariant()
    def the_first_has_it(self) -> None:
        if self.askers:
            assert self.askers[0].has_lock.wait(10)
        assert not any(asker.has_lock.is_set() for asker in self.askers[1:])

    def teardown(self) -> None:
        while self.askers:
            self.leave()


TestDeviceLock = DeviceLockMachine.TestCase
TestDeviceLock.settings = settings(max_examples=15, stateful_step_count=12, deadline=None, derandomize=True)


def test_the_device_lock_is_released_when_a_step_fails() -> None:
    device_lock = FairDeviceLock()
    for _ in range(3):
        with pytest.raises(RuntimeError, match="broken"), device_lock.hold():
            raise RuntimeError("broken")
