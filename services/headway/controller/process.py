"""Processes as they are wanted, and as they were launched."""

import hashlib
import json
import sys
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """A process that should run.

    Attributes:
        name: unique in the stack; also its member id and the name of its log.
        kind: 'router', 'worker', ...
        command: without secrets: every user of the machine can read it.
        environment: variables that it gets besides those of the controller.
        runtime: more of them, which libraries read when they are loaded.
        preload: modules that processes of the same runtime load once and share: it is forked from a process that has
            them. Without any it is started from nothing.
        niceness: how far it stands back for others when the processor is busy.
        cores: of the machine, that it is bound to; () for none.
    """

    name: str
    kind: str
    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    runtime: dict[str, str] = field(default_factory=dict)
    preload: tuple[str, ...] = ()
    niceness: int = 0
    cores: tuple[int, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Changes when the process would have to be started anew. It tells nothing of the environment's secrets."""
        text = json.dumps([self.command, sorted((self.environment | self.runtime).items()), self.niceness, self.cores])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def module_command(kind: str, python: str = sys.executable, /, **flags: object) -> tuple[str, ...]:
    """`python -m headway.KIND --flag value ...` with the interpreter that runs us, or another; flags that are None are
    left out, and those that are True stand alone."""
    named = [(f"--{name.replace('_', '-')}", value) for name, value in flags.items() if value is not None]
    parts = ((name,) if value is True else (name, str(value)) for name, value in named)
    return (python, "-m", f"headway.{kind}", *(part for pair in parts for part in pair))


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """One run of a process, for sure: pids are used again, but not with the same start.

    Attributes:
        start: see `headway.observe.process_start`.
        started_at_s: seconds since 1970, as the clock was when it was launched; for people.
    """

    name: str
    pid: int
    start: str
    started_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """The record of a launched process, from which the next controller finds it."""

    name: str
    kind: str
    pid: int
    start: str
    started_at_s: float
    command: tuple[str, ...]
    fingerprint: str
    num_restarts: int = 0
    has_been_ready: bool = False

    @property
    def handle(self) -> Handle:
        return Handle(name=self.name, pid=self.pid, start=self.start, started_at_s=self.started_at_s)
