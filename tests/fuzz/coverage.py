"""Fuzzing that is guided by coverage: what reaches a place in Headway's code that nothing has reached yet is kept, and
the next cases are made of it (libFuzzer, by Atheris).

Import it first: what `instrumented` imports of Headway is traced, and nothing that was imported before.
"""

import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from random import Random

import atheris

from tests.fuzz.target import Target

_MAX_BYTES = 1 << 14
_MAX_SECONDS = 30  # of one case; a hang
_MAX_MIB = 3072  # of resident memory; growth
_RAW_PART = 0.2  # of all cases: mutated by libFuzzer itself, which knows what bytes were compared with


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one target.

    Attributes:
        fault: the end of what was printed, where a case was not answered; empty where all were.
        num_kept: cases that reached something new.
        peak_mib: of resident memory.
    """

    name: str
    fault: str
    num_kept: int
    cpu_s: float
    peak_mib: float


@contextmanager
def instrumented() -> Iterator[None]:
    """What is imported of Headway in here is traced."""
    with redirect_stderr(StringIO()), atheris.instrument_imports(include=["headway"]):
        yield


def fuzz(target: Target, *, num_cases: int, seed: int, directory: Path) -> Outcome:
    """Fuzzes in a process of its own, which is a fork of this one.

    Args:
        directory: keeps the corpus, the case that was not answered, and what was printed. What is there of an earlier
            run is gone on from.
    """
    corpus, log = directory / "corpus", directory / "log"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(target.plain):
        (corpus / f"plain-{number}").write_bytes(content)
    for path in target.seeds():
        shutil.copy(path, corpus / path.name)
    before_s = _children_s()
    pid = os.fork()
    if pid == 0:
        _run(target, num_cases=num_cases, seed=seed, directory=directory, log=log)
    _, status, usage = os.wait4(pid, 0)
    lines = log.read_text(errors="replace").splitlines()
    return Outcome(
        name=target.name,
        fault="\n".join(lines[-40:]) if status else "",
        num_kept=len(list(corpus.iterdir())),
        cpu_s=_children_s() - before_s,
        peak_mib=usage.ru_maxrss / 1024,
    )


def _run(target: Target, *, num_cases: int, seed: int, directory: Path, log: Path) -> None:
    """Ends the process."""
    with log.open("wb") as file:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(file.fileno(), stream.fileno())
    options = {
        "runs": num_cases,
        "seed": seed,
        "max_len": _MAX_BYTES,
        "timeout": _MAX_SECONDS,
        "rss_limit_mb": _MAX_MIB,
        "artifact_prefix": f"{directory}/",
        "verbosity": 0,
    }
    arguments = [target.name, *(f"-{name}={value}" for name, value in options.items()), str(directory / "corpus")]
    atheris.Setup(arguments, target, custom_mutator=_mutator_of(target))
    atheris.Fuzz()
    os._exit(0)


def _mutator_of(target: Target) -> Callable[[bytes, int, int], bytes]:
    def mutate(content: bytes, max_bytes: int, seed: int) -> bytes:
        random = Random(seed)
        if random.random() < _RAW_PART:
            return atheris.Mutate(content, max_bytes)
        changed = target.mutate(content, random)
        return changed if len(changed) <= max_bytes else content

    return mutate


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
