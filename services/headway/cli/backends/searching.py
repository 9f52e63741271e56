"""Finds the best backends of a model: asks the planner what it wants to know, has the profiler measure that, and asks
again until the planner has its choice."""

import asyncio
import hashlib
import json
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from rich.console import Console

from headway.cli.profile_measure import MeasureOptions, Measuring, measuring_bar
from headway.cli.profiler_link import ProfilerLink, profiler_link
from headway.cli.search.follow import SearchOrder, run_search
from headway.cli.search.interrupt import interruptible
from headway.cli.search.planner_link import PlannerLink, planner_link
from headway.core.backend_search import (
    GRAPH,
    PROGRAM,
    BackendAnswer,
    BackendPlan,
    BackendSearch,
    Candidate,
    CandidatePrograms,
)
from headway.core.capture import CaptureProgress, CaptureRequest
from headway.core.codec import from_document, to_document
from headway.core.graph import Graph
from headway.core.graph_file import graph_bytes
from headway.core.profiling_units import OperatorGroup, ProfilingUnits
from headway.core.program import Program
from headway.core.search_progress import SearchProgress
from headway.core.unit_programs import UnitPrograms
from headway.rpc.child import call_child
from headway.rpc.tasks import end_tasks

_CHUNK = 32
"""Programs of one job: where the measuring is ended, what was being measured is not heard of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendsFound:
    """A choice, and how it came to be.

    Attributes:
        num_measured: programs that were timed for it; what had been before is not among them.
        measuring_s: seconds that this took.
    """

    plan: BackendPlan
    graph: Graph
    num_measured: int
    measuring_s: float


async def capture(request: CaptureRequest, *, deadline_s: float) -> tuple[Graph, Program]:
    """Captures a model in a child process, which starts in this directory so that it finds `module:factory`."""
    graph, program = None, None
    answers = call_child("headway.profiler.capture", to_document(request), deadline_s=deadline_s)
    with Console(stderr=True).status("starting") as status:
        async with aclosing(answers):
            async for answer in answers:
                progress = from_document(CaptureProgress, answer)
                graph, program = progress.graph, progress.program
                status.update(f"capturing {request.source}: {progress.phase}")
    assert graph is not None, "a capture that ends well has a graph"
    assert program is not None, "it was asked for the program"
    return graph, program


async def search_backends(
    graph: Graph, program: Program, search: BackendSearch, options: MeasureOptions, *, time_limit_s: float | None
) -> BackendsFound:
    """Runs the dialogue to its end. Ctrl-C ends the measuring, and the best so far is taken.

    Args:
        time_limit_s: after this nothing more is looked for. Each backend alone, and the final, are measured even so.

    Raises:
        HeadwayError: the search's or the measuring's own.
    """
    console = Console(stderr=True)
    with interruptible(console) as stop:
        async with (
            planner_link(options.state_dir) as planner,
            profiler_link(options.state_dir, device=options.device, num_threads=options.num_threads) as profiler,
        ):
            dialogue = _Dialogue(graph, program, search, options, planner=planner, profiler=profiler)
            over_time = asyncio.Event()
            limit = asyncio.get_running_loop().call_later(time_limit_s, over_time.set) if time_limit_s else None
            try:
                return await dialogue.run(stop, over_time)
            finally:
                if limit is not None:
                    limit.cancel()


class _Dialogue:
    def __init__(
        self,
        graph: Graph,
        program: Program,
        search: BackendSearch,
        options: MeasureOptions,
        *,
        planner: PlannerLink,
        profiler: ProfilerLink,
    ) -> None:
        self._graph = graph
        self._program = program
        self._search = search
        self._options = options
        self._planner = planner
        self._profiler = profiler
        self._programs = CandidatePrograms(graph, program)
        self._num_measured = 0
        self._measuring_s = 0.0

    async def run(self, stop: asyncio.Event, over_time: asyncio.Event) -> BackendsFound:
        search_s = 0.0
        while True:
            began_s = time.monotonic()
            answer = await self._ask(is_over_time=over_time.is_set(), takes_best=stop.is_set())
            search_s += time.monotonic() - began_s
            if answer.plan is not None:
                plan = replace(answer.plan, search_s=search_s)
                return BackendsFound(
                    plan=plan, graph=self._graph, num_measured=self._num_measured, measuring_s=self._measuring_s
                )
            began_s = time.monotonic()
            await self._measure(answer.phase, answer.wanted, [stop, over_time] if answer.is_search else [stop])
            self._measuring_s += time.monotonic() - began_s

    async def _ask(self, *, is_over_time: bool, takes_best: bool) -> BackendAnswer:
        self._search = replace(self._search, is_over_time=is_over_time, takes_best=takes_best)
        program = json.dumps(to_document(self._program)).encode()
        order = SearchOrder(
            kind="backends",
            request=to_document(self._search),
            files={GRAPH: graph_bytes(self._graph), PROGRAM: program},
            title=f"backends of {self._search.model}",
        )
        answer = await run_search(self._planner, order, stop=asyncio.Event(), show=_silent)
        return from_document(BackendAnswer, answer)

    async def _measure(self, phase: str, wanted: Sequence[Candidate], ends: Sequence[asyncio.Event]) -> None:
        """Has all that is wanted measured, or as much as is until one of the events ends it."""
        with measuring_bar() as bar:
            measuring = Measuring(self._profiler, self._options, bar)
            for first in range(0, len(wanted), _CHUNK):
                chunk = wanted[first : first + _CHUNK]
                programs = {program.content_hash: program for program in map(self._programs.program, chunk)}
                labels = [candidate.label for candidate in chunk]
                what = f"{self._search.model}: {phase}"
                job = asyncio.create_task(measuring.measure(_units(what, self._graph, programs, labels)))
                ending = [asyncio.create_task(end.wait()) for end in ends]
                try:
                    await asyncio.wait((job, *ending), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    await end_tasks([*ending, *([] if job.done() else [job])])
                if any(end.is_set() for end in ends):
                    return
                profile = job.result()
                self._num_measured += profile.num_measured
                self._search = replace(self._search, costs=self._search.costs | profile.costs)


def _units(what: str, graph: Graph, programs: dict[str, Program], labels: Sequence[str]) -> UnitPrograms:
    """Placed programs as what the profiler measures: each as an operator of its own."""
    groups = tuple(
        OperatorGroup(
            target=label,
            kind="placed",
            phase="forward",
            shapes=" ".join("x".join(map(str, value.shape)) or "1" for value in program.inputs[:1]),
            dtype=program.inputs[0].dtype if program.inputs else "",
            count=1,
            flops=0,
            bytes_moved=0,
            program=name,
        )
        for label, (name, program) in zip(labels, programs.items(), strict=True)
    )
    subject = ProfilingUnits(
        model=what,
        is_training=False,
        graph_hash=hashlib.sha256(" ".join(programs).encode()).hexdigest()[:16],
        parameters=graph.parameters,
        weight_bytes=graph.parameter_bytes,
        activation_bytes=graph.activation_bytes,
        gradient_bytes=0,
        optimizer_bytes=0,
        operators=groups,
        layers=(),
        program=next(iter(programs)),
    )
    return UnitPrograms(subject, programs)


def _silent(_: SearchProgress) -> None:
    """A turn of the planner is short."""
