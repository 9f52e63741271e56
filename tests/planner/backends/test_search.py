"""The dialogue between the search and whoever measures, on times that are known."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from headway.core.backend import Backend, BackendKind
from headway.core.backend_search import BackendAnswer, BackendPlan, BackendSearch, Candidate, CandidatePrograms
from headway.core.catalogue.figure import Provenance
from headway.core.codec import from_document, to_document
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.graph import Graph
from headway.core.model_profile import Cost
from headway.core.program import Instruction, Program, Value
from headway.planner.backends.fusion import known_fusions
from headway.planner.backends.search import answer
from tests.planner.backends.graphs import make_graph

EAGER = Backend(name="eager", version="1", kind=BackendKind.OPERATORS)
OPENVINO = Backend(name="openvino", version="1")
BFLOAT16 = Backend(name="openvino", version="1", precision="bfloat16")
SPECIAL = "aten.special.default"
VALUE = Value(shape=(2, 4), stride=(4, 1), dtype="float32")


def network(*targets: str) -> tuple[Graph, Program]:
    """A chain of operators."""
    graph = make_graph([[], *([at] for at in range(len(targets) - 1))], targets)
    instructions = tuple(
        Instruction(
            target=target,
            arguments=json.dumps({"args": [{"value": at}], "kwargs": {}}),
            results=(VALUE,),
            name=f"op{at}",
        )
        for at, target in enumerate(targets)
    )
    return graph, Program(inputs=(VALUE,), instructions=instructions, names=("x",), results=(len(targets),))


Measure = Callable[[Candidate, Program], Cost]


def measured(seconds: float, *, deviation: float = 0.0) -> Cost:
    return Cost(seconds=seconds, provenance=Provenance.MEASURED, deviation=deviation)


def by_engine(candidate: Candidate, program: Program) -> Cost:
    """Eager takes a second an operator; OpenVINO half a second and 0.2 s a call, but it lacks the special operator."""
    if candidate.is_probe:
        changes = sum(a.backend != b.backend for a, b in pairwise(candidate.engines))
        return measured(0.05 + 0.1 * len(candidate.engines) + 0.04 * changes, deviation=1.0)
    total = 0.0
    for engine in candidate.engines:
        is_eager = engine.backend == EAGER
        if not is_eager and SPECIAL in {program.instructions[at].target for at in engine.positions}:
            return Cost(note="no such operator")
        total += len(engine.positions) * (1.0 if is_eager else 0.5) + (0.0 if is_eager else 0.2)
    return measured(total, deviation=1e-3 if any(each.backend == BFLOAT16 for each in candidate.engines) else 1e-6)


def converse(
    search: BackendSearch, graph: Graph, program: Program, measure: Measure = by_engine
) -> tuple[BackendPlan, list[BackendAnswer]]:
    programs = CandidatePrograms(graph, program)
    costs: dict[str, Cost] = {}
    asked = []
    while True:
        known = from_document(BackendSearch, to_document(search) | {"costs": to_document(costs)})
        found = answer(known, graph, program, known_fusions())
        if found.plan is not None:
            return found.plan, asked
        asked.append(found)
        for candidate in found.wanted:
            placed = programs.program(candidate)
            assert placed.content_hash not in costs, "nothing is asked for twice"
            costs[placed.content_hash] = measure(candidate, program)


def test_the_fastest_whole_wins_where_nothing_mixes_better() -> None:
    graph, program = network("aten.relu.default", "aten.gelu.default", "aten.relu.default")
    plan, asked = converse(BackendSearch(model="m", backends=(EAGER, OPENVINO)), graph, program)
    assert [group.backend for group in plan.groups] == [OPENVINO]
    assert plan.chosen_s == pytest.approx(1.7)
    assert plan.eager_s == pytest.approx(3.0)
    assert plan.single == pytest.approx({"eager": 3.0, "openvino": 1.7})
    assert plan.groups[0].others == pytest.approx({"eager": 3.0}), "as timed, not as the sum of kernels"
    assert [each.phase for each in asked][:3] == ["each backend alone", "context switches", "kernels"]
    assert plan.switch_s == pytest.approx({"eager": -0.04375, "openvino": 0.02625})


def test_an_operator_that_a_library_lacks_has_engines_around_it() -> None:
    relu = "aten.relu.default"
    graph, program = network(relu, relu, SPECIAL, relu, relu)
    plan, _ = converse(BackendSearch(model="m", backends=(EAGER, OPENVINO)), graph, program)
    assert [str(group.backend) for group in plan.groups] == ["openvino", "eager", "openvino"]
    assert plan.groups[1].operators == ("op2",)
    assert plan.chosen_s == pytest.approx(3.4)
    assert "openvino does not run the whole: no such operator" in plan.dropped
    assert plan.chosen_s < min(plan.single.values())
    assert [each.name for each in plan.contest] == ["the choice", "eager"]


def test_engines_around_an_operator_are_found_before_all_kernels_were_timed() -> None:
    """One operator of each kind says what a library lacks, so that a short search finds the engines too."""
    relu = "aten.relu.default"
    graph, program = network(relu, relu, SPECIAL, relu, relu)
    programs = CandidatePrograms(graph, program)
    search, costs = BackendSearch(model="m", backends=(EAGER, OPENVINO)), dict[str, Cost]()
    while not (found := answer(replace(search, costs=costs), graph, program, known_fusions())).plan:
        assert found.phase != "kernels" or not search.is_over_time
        search = replace(search, is_over_time=found.phase == "what is around them" or search.is_over_time)
        costs |= {programs.program(each).content_hash: by_engine(each, program) for each in found.wanted}
    assert [str(group.backend) for group in found.plan.groups] == ["openvino", "eager", "openvino"]
    assert found.plan.chosen_s == pytest.approx(3.4)
    assert search.is_over_time
    assert len(costs) < 16


def test_backends_that_are_near_are_timed_once_more_together() -> None:
    """The one that had a quiet moment the first time is not the choice."""

    def lucky(candidate: Candidate, program: Program) -> Cost:
        cost = by_engine(candidate, program)
        is_openvino = candidate.is_whole and candidate.engines[0].backend == OPENVINO
        seconds = {0: 0.9, 1: 1.3}[candidate.trial] if is_openvino else 1.0 if candidate.is_whole else cost.seconds
        return measured(seconds)

    graph, program = network("aten.relu.default")
    plan, asked = converse(BackendSearch(model="m", backends=(EAGER, OPENVINO)), graph, program, lucky)
    assert [each.phase for each in asked][-1] == "the final"
    assert {group.backend for group in plan.groups} == {EAGER}
    assert {each.name: each.seconds for each in plan.contest} == {"eager": 1.0, "openvino": 1.3}
    assert plan.placement.trial == 0


def test_a_variant_is_used_only_within_the_error() -> None:
    def quick(candidate: Candidate, program: Program) -> Cost:
        cost = by_engine(candidate, program)
        is_quick = all(engine.backend == BFLOAT16 for engine in candidate.engines)
        return measured(cost.seconds / 2, deviation=1e-3) if is_quick else cost

    graph, program = network("aten.relu.default", "aten.gelu.default")
    offered = (EAGER, OPENVINO, BFLOAT16)
    strict, _ = converse(BackendSearch(model="m", backends=offered), graph, program, quick)
    assert {group.backend for group in strict.groups} == {OPENVINO}
    assert "openvino-bfloat16 is wrong by 1.0e-03, and 0.0001 is allowed" in strict.dropped
    loose, _ = converse(BackendSearch(model="m", backends=offered, max_error=1e-2), graph, program, quick)
    assert {group.backend for group in loose.groups} == {BFLOAT16}
    assert loose.deviation == pytest.approx(1e-3)


def test_a_variant_that_is_not_precise_enough_for_the_whole_runs_what_the_error_allows() -> None:
    """Each operator in bfloat16 adds to the error, those at the start half as much: the first 10 of 16 are allowed."""
    errors = [5e-4] * 8 + [1e-3] * 8

    def adding(candidate: Candidate, program: Program) -> Cost:
        if not candidate.is_whole or EAGER in {each.backend for each in candidate.engines}:
            return by_engine(candidate, program)
        lossy = [at for each in candidate.engines if each.backend == BFLOAT16 for at in each.positions]
        exact = len(program.instructions) - len(lossy)
        return measured(0.5 * exact + 0.2 * len(lossy) + 0.1, deviation=sum(errors[at] for at in lossy))

    graph, program = network(*["aten.relu.default"] * 16)
    search = BackendSearch(model="m", backends=(EAGER, OPENVINO, BFLOAT16), max_error=6e-3)
    plan, asked = converse(search, graph, program, adding)
    assert [(str(each.backend), len(each.operators)) for each in plan.groups] == [
        ("openvino-bfloat16", 10),
        ("openvino", 6),
    ]
    assert plan.deviation == pytest.approx(6e-3)
    assert plan.chosen_s == pytest.approx(5.1)
    assert sum(len(each.wanted) for each in asked if each.phase == "mixed precision") <= 10
    far = BackendSearch(model="m", backends=(EAGER, OPENVINO, BFLOAT16), max_error=2e-3)
    plan, asked = converse(far, graph, program, adding)
    assert {each.backend for each in plan.groups} == {OPENVINO}
    assert plan.dropped == ("openvino-bfloat16 is wrong by 1.2e-02, and 0.002 is allowed",)
    assert not any(each.phase == "mixed precision" for each in asked)


def test_the_best_so_far_is_taken_where_nothing_more_can_be_measured() -> None:
    graph, program = network("aten.relu.default", "aten.gelu.default")
    programs = CandidatePrograms(graph, program)
    search = BackendSearch(model="m", backends=(EAGER, OPENVINO))
    first = answer(search, graph, program, known_fusions())
    costs = {programs.program(each).content_hash: by_engine(each, program) for each in first.wanted}
    ended = BackendSearch(model="m", backends=(EAGER, OPENVINO), costs=costs, takes_best=True)
    found = answer(ended, graph, program, known_fusions())
    assert found.plan is not None
    assert [group.backend for group in found.plan.groups] == [OPENVINO]


def test_a_search_that_is_ended_before_anything_was_measured_says_so() -> None:
    graph, program = network("aten.relu.default")
    with pytest.raises(FailedPreconditionError, match="ended before any backend had run the whole of m"):
        answer(BackendSearch(model="m", backends=(EAGER,), takes_best=True), graph, program, known_fusions())


def test_what_is_over_time_still_times_each_backend_alone_and_the_final() -> None:
    """A model whose backends take longer to compile than the limit gets a choice that was proven."""
    graph, program = network("aten.relu.default", "aten.gelu.default")
    search = BackendSearch(model="m", backends=(EAGER, OPENVINO), is_over_time=True)
    near = {EAGER: 1.0, OPENVINO: 0.9}
    plan, asked = converse(search, graph, program, lambda candidate, _: measured(near[candidate.engines[0].backend]))
    assert [each.phase for each in asked] == ["each backend alone", "the final"]
    assert not any(each.is_search for each in asked)
    assert [each.name for each in plan.contest] == ["eager", "openvino"]
    assert [group.backend for group in plan.groups] == [OPENVINO]


def test_where_nothing_runs_the_reasons_are_told() -> None:
    graph, program = network(SPECIAL)
    with pytest.raises(FailedPreconditionError, match="openvino does not run the whole: no such operator"):
        converse(BackendSearch(model="m", backends=(OPENVINO,)), graph, program)


def test_what_was_only_estimated_does_not_count_as_measured() -> None:
    """An operator that a device lacks ends each process that times it; the estimate then is of a few microseconds."""
    note = "it was lost 3 times: the process ended with status 1"
    graph, program = network("aten.relu.default")
    with pytest.raises(FailedPreconditionError, match=f"eager does not run the whole: {note}"):
        converse(
            BackendSearch(model="m", backends=(EAGER, OPENVINO)),
            graph,
            program,
            lambda _candidate, _program: Cost(seconds=5e-6, provenance=Provenance.ESTIMATED, note=note),
        )


def test_bad_searches_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="max_error must be above 0"):
        BackendSearch(model="m", backends=(EAGER,), max_error=0.0)
    with pytest.raises(InvalidArgumentError, match="No backend is offered"):
        BackendSearch(model="m", backends=())


def test_another_version_option_or_precision_is_another_measurement() -> None:
    graph, program = network("aten.relu.default", "aten.gelu.default")
    programs = CandidatePrograms(graph, program)
    first = answer(BackendSearch(model="m", backends=(OPENVINO,)), graph, program, known_fusions()).wanted
    newer = Backend(name="openvino", version="2")
    hashes = set()
    for backend in (OPENVINO, newer, BFLOAT16, EAGER):
        asked = answer(BackendSearch(model="m", backends=(backend,)), graph, program, known_fusions()).wanted
        hashes.add(programs.program(asked[0]).content_hash)
    assert len(hashes) == 4
    assert programs.program(first[0]).content_hash in hashes
    assert program.content_hash not in hashes
