"""The two-level search (Collage section 2.4) as a dialogue with whoever measures; see `headway.core.backend_search`."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from headway.core.backend import EAGER, Backend, BackendKind, Engine
from headway.core.backend_search import (
    BackendAnswer,
    BackendPlan,
    BackendSearch,
    Candidate,
    CandidatePrograms,
    Finalist,
    PlannedEngine,
)
from headway.core.errors import FailedPreconditionError
from headway.core.graph import Graph
from headway.core.model_profile import UNKNOWN, Cost
from headway.core.program import Program
from headway.planner.backends.cut import next_cut
from headway.planner.backends.engines import Choice, merged
from headway.planner.backends.evolution import Digits, Evolution
from headway.planner.backends.network import Network, Operators
from headway.planner.backends.placing import Cover, Kernel, place
from headway.planner.backends.registry import Registry

_NEAR = 1.25
"""A backend that takes so much longer than the best can't win the final."""
_CHANGES = 4
"""How often a probe changes to a backend, and back."""
_PARTLY = 4.0
"""A backend of less precision that is wrong by so many times what is allowed is not worth a part of the program."""


def answer(search: BackendSearch, graph: Graph, program: Program, registry: Registry) -> BackendAnswer:
    """What to measure next, or the choice.

    First each backend runs the whole, then those of too little precision run parts of it; then each kernel that a
    backend can run is timed, then whole placements.

    Raises:
        FailedPreconditionError: no backend runs the model within the error, and nothing is left to be measured.
    """
    return _Dialogue(search, graph, program, registry).answer()


class _Dialogue:
    def __init__(self, search: BackendSearch, graph: Graph, program: Program, registry: Registry) -> None:
        self._search = search
        self._network = Network(graph)
        self._programs = CandidatePrograms(graph, program)
        self._registry = registry
        positions = program.positions()
        self._positions = [positions[operator.name] for operator in graph.operators]
        self._hashes: dict[Candidate, str] = {}

    def answer(self) -> BackendAnswer:
        wholes = [self._single(backend) for backend in self._search.backends]
        if wanted := self._unknown(wholes):
            return BackendAnswer(phase="each backend alone", wanted=wanted)
        for phase, candidates in self._parts():
            if wanted := self._sought(candidates):
                return BackendAnswer(phase=phase, wanted=wanted, is_search=True)
        measured: dict[Digits, float] = {}
        while digits := self._evolution.wanted(self._seeds, measured):
            if wanted := self._sought(self._whole(each) for each in digits):
                return BackendAnswer(phase="placements", wanted=wanted, is_search=True)
            measured |= {each: self._seconds(self._whole(each)) for each in digits}
        best = self._best([*wholes, *self._mixed, *self._islands, *(self._whole(each) for each in measured)])
        finalists = self._finalists(best, wholes)
        if len(finalists) > 1:
            if wanted := self._unknown(finalists):
                return BackendAnswer(phase="the final", wanted=wanted)
            timed = [each for each in finalists if self._seconds(each) < math.inf]
            best = self._fastest(timed) if len(timed) == len(finalists) else best
        if len(best.engines) > 1 and (wanted := self._unknown(self._alone(each) for each in best.engines)):
            return BackendAnswer(phase="engines of the best placement", wanted=wanted)
        return BackendAnswer(plan=self._plan(best))

    def _parts(self) -> Iterator[tuple[str, Iterable[Candidate]]]:
        """What placements rest on; each phase is of the backends that were right in the one before."""
        yield "mixed precision", self._mixed
        yield "operators that a library may lack", [each for some in self._probed.values() for each in some.values()]
        yield "what is around them", self._islands
        yield "context switches", [each for backend in self._right for each in self._probes(backend)]
        yield "kernels", [each for some in self._kernels.values() for each in some.values()]

    def _sought(self, candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
        """As `_unknown`; none where the time to look is over."""
        return () if self._search.is_over_time else self._unknown(candidates)

    def _unknown(self, candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
        """Candidates that are not known, equal ones once; none where nothing more can be measured."""
        if self._search.takes_best:
            return ()
        missing: dict[str, Candidate] = {}
        for candidate in candidates:
            name = self._hash(candidate)
            if name not in self._search.costs:
                missing.setdefault(name, candidate)
        return tuple(missing.values())

    def _hash(self, candidate: Candidate) -> str:
        if candidate not in self._hashes:
            self._hashes[candidate] = self._programs.program(candidate).content_hash
        return self._hashes[candidate]

    def _cost(self, candidate: Candidate) -> Cost:
        return self._search.costs.get(self._hash(candidate), UNKNOWN)

    def _seconds(self, candidate: Candidate) -> float:
        """Infinite where it was not measured, can't run, or is wrong. What is estimated has a note that says why."""
        cost = self._cost(candidate)
        return math.inf if cost.note or cost.deviation > self._search.max_error else cost.seconds

    def _best(self, candidates: Iterable[Candidate]) -> Candidate:
        best = self._fastest(candidates)
        if self._seconds(best) < math.inf:
            return best
        if not any(self._hash(self._single(backend)) in self._search.costs for backend in self._search.backends):
            raise FailedPreconditionError(
                f"The search was ended before any backend had run the whole of {self._search.model}.",
                hint="What was measured is kept: give it more time, or offer fewer --backends.",
            )
        raise FailedPreconditionError(
            f"No backend runs {self._search.model} within an error of {self._search.max_error:g}. "
            + "; ".join(self._dropped),
            hint="Offer 'eager', which runs anything and is never wrong, or allow a larger --max-error.",
        )

    def _fastest(self, candidates: Iterable[Candidate]) -> Candidate:
        return min(candidates, key=self._seconds)

    def _single(self, backend: Backend) -> Candidate:
        engine = Engine(backend=backend, positions=self._programs.parts.operators)
        return Candidate(label=f"all on {backend}", engines=(engine,), is_whole=True)

    @cached_property
    def _probed(self) -> dict[Backend, dict[str, Candidate]]:
        """One operator of each kind on each library that does not run the whole."""
        firsts = {self._network.operator(at).target: at for at in reversed(range(len(self._positions)))}
        return {
            library: {target: self._kernel(frozenset({at}), library) for target, at in firsts.items()}
            for library in self._libraries
            if self._cost(self._single(library)).note
        }

    @cached_property
    def _islands(self) -> list[Candidate]:
        """On each library that does not run the whole everything but what it lacks, which the fastest backend runs."""
        rest = self._fastest_whole
        if rest is None or set(self._positions) != set(self._programs.parts.operators):
            return []
        found = []
        for library, probes in self._probed.items():
            runs = {target for target, probe in probes.items() if self._seconds(probe) < math.inf}
            backends = [
                library if self._network.operator(at).target in runs else rest for at in range(len(self._positions))
            ]
            if runs and rest in backends:
                found.append(self._placed([(frozenset({at}), backend) for at, backend in enumerate(backends)]))
        return found

    @cached_property
    def _mixed(self) -> list[Candidate]:
        """Placements where a backend that is not precise enough for the whole runs the first part or the last."""
        return [
            cut
            for lossy, exact in self._pairs()
            for backends in ((lossy, exact), (exact, lossy))
            for cut in self._cuts(*backends, lossy=lossy)
        ]

    def _pairs(self) -> Iterator[tuple[Backend, Backend]]:
        """Yields backends that would be faster than the fastest one that is right, were they precise enough, each with
        that one, which can run the rest."""
        exact = self._fastest_whole
        if exact is None:
            return
        for backend in self._search.backends:
            cost = self._cost(self._single(backend))
            is_faster = not cost.note and cost.seconds < self._seconds(self._single(exact))
            is_near = self._search.max_error < cost.deviation <= _PARTLY * self._search.max_error
            if backend.precision != exact.precision and is_faster and is_near:
                yield backend, exact

    def _cuts(self, first: Backend, last: Backend, *, lossy: Backend) -> list[Candidate]:
        """Two engines, one of them lossy: the cuts between them that were tried, and the next one."""
        operators = self._programs.parts.operators
        found: list[Candidate] = []
        is_within: dict[int, bool] = {}
        while (length := next_cut(len(operators), is_within)) is not None:
            place = length if first == lossy else len(operators) - length
            engines = (
                Engine(backend=first, positions=operators[:place]),
                Engine(backend=last, positions=operators[place:]),
            )
            label = f"{place} operators on {first}, {len(operators) - place} on {last}"
            found.append(Candidate(label=label, engines=engines, is_whole=True))
            if self._hash(found[-1]) not in self._search.costs:
                break
            is_within[length] = self._seconds(found[-1]) < math.inf
        return found

    def _finalists(self, best: Candidate, wholes: Sequence[Candidate]) -> list[Candidate]:
        """The best, the fastest backend, and all backends that are near; alone where there is nobody else."""
        limit_s = max(_NEAR * self._seconds(best), self._seconds(self._fastest(wholes)))
        near = [best, *(each for each in wholes if self._seconds(each) <= limit_s < math.inf)]
        return list({self._hash(each): each for each in (replace(each, trial=1) for each in near)}.values())

    def _probes(self, backend: Backend) -> tuple[Candidate, Candidate, Candidate]:
        """Alternately on a backend and on another, and one operator on each."""
        other = self._other(backend)
        chain = tuple(Engine(backend=other if at % 2 else backend, positions=(at,)) for at in range(2 * _CHANGES))
        alone = (Engine(backend=each, positions=(0,)) for each in (backend, other))
        single, single_of_other = (
            Candidate(label=f"an operator on {engine.backend}", engines=(engine,), is_probe=True) for engine in alone
        )
        label = f"changes between {backend} and {other}"
        return Candidate(label=label, engines=chain, is_probe=True), single, single_of_other

    def _other(self, backend: Backend) -> Backend:
        """The backend that a probe changes to: torch, where that is offered, and else the next engine of its own."""
        return next((each for each in self._right if each.name == EAGER), backend)

    def _switch_s(self, backend: Backend) -> float:
        """The context switch of (2.2): what a kernel of a backend takes more in a row of others than by itself. There
        it pays for the start of a run too, so that this may be below nothing. Zero where it is not known."""
        other = self._other(backend)
        if other == backend:
            return self._more_s(backend) / 2
        return self._more_s(backend) - self._more_s(other) / 2

    def _more_s(self, backend: Backend) -> float:
        """What an operator on a backend and one on the other take more in turns than each by itself."""
        costs = [self._cost(each) for each in self._probes(backend)]
        if any(cost.note for cost in costs):
            return 0.0
        changing_s, single_s, other_s = (cost.seconds for cost in costs)
        return changing_s / _CHANGES - single_s - other_s

    def _alone(self, engine: Engine) -> Candidate:
        return Candidate(label=f"{len(engine.positions)} operators on {engine.backend}", engines=(engine,))

    @cached_property
    def _dropped(self) -> tuple[str, ...]:
        """Backends that don't run the whole, and why. Those that are wrong run nothing, but those that only lack
        precision may run a part (`_mixed`)."""
        found = []
        for backend in self._search.backends:
            cost = self._cost(self._single(backend))
            if cost.note:
                found.append(f"{backend} does not run the whole: {cost.note}")
            elif backend not in self._right:
                found.append(f"{backend} is wrong by {cost.deviation:.1e}, and {self._search.max_error:g} is allowed")
        return tuple(found)

    @cached_property
    def _right(self) -> list[Backend]:
        """Backends that may be used: all but those whose results differ too much."""
        costs = [(backend, self._cost(self._single(backend))) for backend in self._search.backends]
        return [backend for backend, cost in costs if not cost.is_known or cost.deviation <= self._search.max_error]

    @cached_property
    def _fastest_whole(self) -> Backend | None:
        """The backend that is right and runs the whole the fastest; None where none does."""
        running = [each for each in self._right if self._seconds(self._single(each)) < math.inf]
        return min(running, key=lambda each: self._seconds(self._single(each)), default=None)

    @cached_property
    def _libraries(self) -> list[Backend]:
        return [backend for backend in self._right if backend.kind is BackendKind.GRAPH]

    @cached_property
    def _kernels(self) -> dict[Operators, dict[Backend, Candidate]]:
        """What can be one kernel, next to each other on the backends that run it, so that these are timed in turns."""
        found: dict[Operators, dict[Backend, Candidate]] = {}
        for match in self._registry.matches(self._network, self._right).found:
            found.setdefault(match.operators, {})[match.backend] = self._kernel(match.operators, match.backend)
        return found

    def _kernel(self, operators: Operators, backend: Backend) -> Candidate:
        names = [self._network.operator(at).target.split(".") for at in sorted(operators)]
        label = "+".join(name[min(1, len(name) - 1)] for name in names)
        positions = tuple(sorted(self._positions[at] for at in operators))
        return Candidate(label=f"{label} on {backend}", engines=(Engine(backend=backend, positions=positions),))

    @cached_property
    def _cover(self) -> Cover | None:
        """The op-level placement; None where the kernels that are known don't cover the graph."""
        if set(self._positions) != set(self._programs.parts.operators):
            return None
        switches_s = {backend: self._switch_s(backend) for backend in self._right}
        known = [
            Kernel(operators, backend, self._seconds(candidate), switches_s[backend])
            for operators, by_backend in self._kernels.items()
            for backend, candidate in by_backend.items()
            if self._seconds(candidate) < math.inf
        ]
        try:
            return place(self._network, known)
        except FailedPreconditionError:
            return None

    @cached_property
    def _evolution(self) -> Evolution:
        search, count = self._search, len(self._libraries)
        return Evolution(
            num_libraries=count, population=search.population, generations=search.generations, seed=search.seed
        )

    @cached_property
    def _seeds(self) -> list[Digits]:
        """The op-level placement, and as much as can be on each library."""
        if self._cover is None:
            return []
        return [(number,) * len(self._cover.kernels) for number in range(len(self._libraries) + 1)]

    def _whole(self, digits: Digits) -> Candidate:
        """The placement that digits stand for. A kernel that a library can't run stays where it was."""
        assert self._cover is not None
        choices: list[Choice] = []
        for digit, kernel in zip(digits, self._cover.kernels, strict=True):
            backend = self._libraries[digit - 1] if digit else kernel.backend
            runs = backend in self._kernels[kernel.operators] and self._runs(kernel.operators, backend)
            choices.append((kernel.operators, backend if runs else kernel.backend))
        return self._placed(choices)

    def _placed(self, choices: Sequence[Choice]) -> Candidate:
        engines = tuple(
            Engine(backend=backend, positions=tuple(sorted(self._positions[at] for at in operators)))
            for operators, backend in merged(self._network, choices)
        )
        return Candidate(label=f"{len(engines)} engines", engines=engines, is_whole=True)

    def _runs(self, operators: Operators, backend: Backend) -> bool:
        return self._seconds(self._kernels[operators][backend]) < math.inf

    def _plan(self, best: Candidate) -> BackendPlan:
        singles = {str(each): self._single_s(each) for each in self._search.backends}
        placement = self._programs.program(replace(best, trial=0)).placement
        assert placement is not None
        return BackendPlan(
            model=self._search.model,
            groups=tuple(self._group(best, engine) for engine in best.engines),
            placement=placement,
            chosen_s=self._seconds(best),
            eager_s=finite(singles.get(EAGER, math.inf)),
            predicted_s=None if self._cover is None else self._cover.seconds,
            op_level_s=None if self._cover is None else finite(self._seconds(self._whole(self._seeds[0]))),
            single={name: seconds for name, seconds in singles.items() if seconds < math.inf},
            deviation=self._cost(best).deviation,
            contest=tuple(self._contest(best)),
            switch_s={str(backend): self._switch_s(backend) for backend in self._right},
            dropped=self._dropped,
            num_measured=len(self._search.costs),
        )

    def _contest(self, best: Candidate) -> Iterator[Finalist]:
        """The final's times, the choice's first."""
        candidates = {} if len(best.engines) == 1 else {"the choice": best}
        candidates |= {str(each): replace(self._single(each), trial=1) for each in self._search.backends}
        for name, candidate in candidates.items():
            cost = self._cost(candidate)
            if candidate.trial and self._seconds(candidate) < math.inf:
                yield Finalist(
                    name=name,
                    seconds=cost.seconds,
                    least_s=cost.least_s,
                    num_runs=cost.num_repeats,
                    num_contended=cost.num_contended,
                )

    def _single_s(self, backend: Backend) -> float:
        """As timed in the final, where the backend came that far."""
        single = self._single(backend)
        final_s = self._seconds(replace(single, trial=1))
        return final_s if final_s < math.inf else self._seconds(single)

    def _group(self, best: Candidate, engine: Engine) -> PlannedEngine:
        inside = set(engine.positions)
        names = [self._network.operator(at).name for at, position in enumerate(self._positions) if position in inside]
        measured_s = self._seconds(best if len(best.engines) == 1 else self._alone(engine))
        sums: dict[Backend, float] = {}
        if self._cover is not None:
            kernels = [each for each in self._cover.kernels if {self._positions[at] for at in each.operators} <= inside]
            sums = {backend: self._sum(kernels, backend) for backend in self._right}
        others = sums if len(best.engines) > 1 else {each: self._single_s(each) for each in self._search.backends}
        return PlannedEngine(
            operators=tuple(names),
            backend=engine.backend,
            estimated_s=finite(sums.get(engine.backend, math.inf)),
            measured_s=finite(measured_s),
            others={
                str(backend): seconds
                for backend, seconds in others.items()
                if backend != engine.backend and seconds < math.inf
            },
        )

    def _sum(self, kernels: Iterable[Kernel], backend: Backend) -> float:
        """What kernels take on a backend; infinite where it does not run one of them."""
        known = [self._kernels[kernel.operators].get(backend) for kernel in kernels]
        switch_s = self._switch_s(backend)
        return sum(math.inf if each is None else self._seconds(each) + switch_s for each in known)


def finite(seconds: float) -> float | None:
    """None where it is not known."""
    return seconds if seconds < math.inf else None
