"""Measures one of Collage's networks: searches by the command line, then a contest of the choice with each backend."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from benchmarks.backends.row import CHOICE, LOOSE_CHOICE, LOOSE_ERROR, Lap, Row
from headway.backends.contest import Contest
from headway.cli.backends.searching import capture
from headway.core.backend import BackendPlacement, Engine
from headway.core.backend_package import FLOAT32, installed_backends
from headway.core.backend_search import Candidate, CandidatePrograms
from headway.core.capture import CaptureRequest
from headway.core.codec import from_document
from headway.core.program import Program
from headway.core.timing import Timing

NETWORKS: Mapping[str, tuple[str, int | None]] = {
    "bert-32": ("zoo:bert-base", 32),
    "bert-128": ("zoo:bert-base", 128),
    "dcgan": ("zoo:dcgan", None),
    "nasnet": ("zoo:nasnet-a-mobile", None),
    "resnet3d": ("zoo:resnet3d-50", None),
    "resnext50": ("zoo:resnext50", None),
}
"""Models of the zoo, and tokens."""
ORDER = ("eager", "inductor", "onnxruntime", "openvino", "headway")
"""In which the ablation adds backends."""
_MEMORY_BYTES = 8 << 30


def measure_network(
    name: str, *, num_threads: int, state_dir: Path, time_limit_s: float, has_ablation: bool, is_loose: bool
) -> Row:
    """Everything that a row has. What was measured before and lies in `state_dir` is not measured again.

    Args:
        time_limit_s: for the measuring of each search; the best so far is taken then.
    """
    source, seq = NETWORKS[name]
    options = ["--threads", str(num_threads), "--state-dir", str(state_dir), "--time-limit", str(time_limit_s)]
    options += ["--seq", str(seq)] if seq else []
    installed = [each for each in ORDER if each in {backend.name for backend in installed_backends()}]
    first = _plan(source, options)
    again = _plan(source, options)
    loose = _plan(source, [*options, "--max-error", str(LOOSE_ERROR)]) if is_loose else None
    ablation = {}
    for count in range(1, len(installed) + 1) if has_ablation else ():
        offered = ",".join(installed[:count])
        ablation[installed[count - 1]] = _plan(source, [*options, "--backends", offered])["chosen_s"]
    contest, faults = _contest(source, seq, num_threads, again, loose)
    return Row(
        network=name,
        num_threads=num_threads,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        load_average=os.getloadavg()[0],
        contest=contest,
        faults=faults,
        engines=_backends(again),
        loose_engines=_backends(loose) if loose else [],
        predicted_s=again.get("predicted_s"),
        op_level_s=again.get("op_level_s"),
        ablation=ablation,
        search_s=again["search_s"],
        measuring_s=first["measuring_s"],
        num_measured=first["num_measured"],
    )


def _plan(source: str, options: Sequence[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "headway.cli", "plan", "backends", source, "--json", *options]
    found: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return found


def _backends(plan: Mapping[str, Any]) -> list[str]:
    named = [(group["backend"]["name"], group["backend"]["precision"]) for group in plan["groups"]]
    return [name if precision == FLOAT32 else f"{name}-{precision}" for name, precision in named]


def _contest(
    source: str, seq: int | None, num_threads: int, plan: Mapping[str, Any], loose: Mapping[str, Any] | None
) -> tuple[dict[str, Lap], dict[str, str]]:
    """Each float32 backend alone and the choices, a process each; and why some did not run."""
    request = CaptureRequest(source=source, seq=seq, with_program=True)
    graph, program = asyncio.run(capture(request, deadline_s=600.0))
    programs = CandidatePrograms(graph, program)
    entries: dict[str, Program] = {}
    for backend in installed_backends():
        if backend.precision == FLOAT32:
            engine = Engine(backend=backend, positions=programs.parts.operators)
            candidate = Candidate(label=str(backend), engines=(engine,), is_whole=True, trial=1)
            entries[str(backend)] = programs.program(candidate)
    for name, chosen in ((CHOICE, plan), (LOOSE_CHOICE, loose)):
        if chosen is not None:
            placement = from_document(BackendPlacement, chosen["placement"])
            candidate = Candidate(label=name, engines=placement.engines, is_whole=True, trial=1)
            entries[name] = programs.program(candidate)
    different = {entry.content_hash: entry for entry in entries.values()}
    contest = Contest(torch.device("cpu"), memory_bytes=_MEMORY_BYTES, num_threads=num_threads)
    timings = dict(zip(different, contest.times(list(different.values()), first=0), strict=True))
    by_name = {name: timings[entry.content_hash] for name, entry in entries.items()}
    laps = {name: lap(timing) for name, timing in by_name.items() if not timing.fault}
    return laps, {name: timing.fault for name, timing in by_name.items() if timing.fault}


def lap(timing: Timing) -> Lap:
    """The row's part of a timing."""
    return Lap(
        seconds=timing.seconds,
        least_s=timing.least_s,
        num_runs=timing.num_repeats,
        num_contended=timing.num_contended,
        deviation=timing.deviation,
    )
