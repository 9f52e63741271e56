"""The pattern language, rules, and what is legal."""

import random
from itertools import pairwise

import pytest

from headway.core.backend import Backend
from headway.core.errors import InvalidArgumentError
from headway.core.graph import OperatorKind
from headway.planner.backends.network import Network, Operators
from headway.planner.backends.pattern import Op, Pattern, dominator, is_op, repeated, wildcard
from headway.planner.backends.registry import Registry
from headway.planner.backends.rule import generate
from tests.planner.backends.graphs import make_graph, random_graph, ways_out

CONV, RELU, ADD, GELU = "aten.convolution.default", "aten.relu.default", "aten.add.Tensor", "aten.gelu.default"
BACKEND = Backend(name="mine")


def found(network: Network, pattern: Pattern) -> set[Operators]:
    registry = Registry()
    registry.add_backend_pattern("mine", pattern)
    return {match.operators for match in registry.matches(network, [BACKEND]).found}


def residual() -> Network:
    """relu(add(conv(x), gelu(x)))"""
    return Network(make_graph([[], [], [0, 1], [2]], [CONV, GELU, ADD, RELU]))


def test_a_pattern_is_matched_backwards_from_its_root() -> None:
    conv = is_op("convolution")(wildcard())
    assert found(residual(), is_op("relu")(is_op("add")(conv, wildcard()))) == {frozenset({0, 2, 3})}
    assert found(residual(), is_op("add")) == {frozenset({2})}
    assert found(residual(), is_op("relu")(conv)) == set()


def test_operators_that_commute_match_either_way() -> None:
    conv = is_op("convolution")
    assert found(residual(), is_op("add")(wildcard(), conv)) == found(residual(), is_op("add")(conv, wildcard()))


def test_alternatives_give_all_that_match() -> None:
    add = is_op("add")(is_op("gelu") | wildcard(), wildcard())
    assert found(residual(), add) == {frozenset({2}), frozenset({1, 2})}


def test_constraints_look_at_the_roots_result_and_arguments() -> None:
    network = residual()
    assert found(network, is_op("add").has_shape((2, None))) == {frozenset({2})}
    assert found(network, is_op("add").has_shape((3, None))) == set()
    assert found(network, is_op("add").has_shape((2,))) == set()
    assert found(network, is_op("add").has_dtype("float32")) == {frozenset({2})}
    assert found(network, is_op("add").has_dtype("bfloat16")) == set()
    assert found(network, is_op("add").has_attr({"alpha": 2})) == set()


def test_repeated_matches_chains_of_each_length() -> None:
    network = Network(make_graph([[], [0], [1], [2]], [CONV, RELU, RELU, RELU]))
    assert found(network, repeated(is_op("relu"), most=2, start=is_op("convolution"))) == {
        frozenset({0, 1}),
        frozenset({0, 1, 2}),
    }


def test_a_dominator_takes_what_is_between() -> None:
    network = Network(make_graph([[], [0], [0], [1, 2]], [CONV, RELU, RELU, ADD]))
    assert found(network, dominator(is_op("convolution"), is_op("relu"), is_op("add"))) == {frozenset({0, 1, 2, 3})}
    assert found(network, dominator(is_op("convolution"), is_op("gelu"), is_op("add"))) == set()


def test_a_pattern_that_overlaps_itself_is_refused_by_name() -> None:
    network = Network(make_graph([[], [0], [0], [1, 2]], [CONV, RELU, RELU, ADD]))
    registry = Registry()
    relu = is_op("relu")(is_op("convolution"))
    registry.add_backend_pattern("mine", is_op("add")(relu, relu), name="twins")
    (refused,) = registry.matches(network, [BACKEND]).refused
    assert str(refused) == "mine's pattern 'twins' is refused at op3: it overlaps itself: it needs op0 twice"


def test_a_match_with_a_way_back_is_refused_by_name() -> None:
    network = Network(make_graph([[], [0], [0, 1]], [CONV, GELU, ADD]))
    registry = Registry()
    registry.add_backend_pattern("mine", is_op("add")(is_op("convolution"), wildcard()), name="loop")
    matches = registry.matches(network, [BACKEND])
    assert matches.found == ()
    assert [str(each) for each in matches.refused] == [
        "mine's pattern 'loop' is refused at op2: it is cyclic: what op0 gives leaves it and comes back"
    ]


def test_a_match_whose_inside_is_read_elsewhere_is_refused() -> None:
    network = Network(make_graph([[], [0], [0]], [CONV, RELU, GELU]))
    registry = Registry()
    registry.add_backend_pattern("mine", is_op("relu")(is_op("convolution")), name="fused")
    (refused,) = registry.matches(network, [BACKEND]).refused
    assert "more than one result leaves it: those of op0 and op1" in str(refused)


def test_a_pattern_that_contains_itself_is_refused_by_name() -> None:
    loop = Op("relu", [])  # type: ignore[arg-type]
    loop.operands.append(loop)  # type: ignore[attr-defined]
    with pytest.raises(InvalidArgumentError, match="The pattern 'loop' is cyclic"):
        Registry().add_backend_pattern("mine", loop, name="loop")


def test_patterns_without_an_operator_or_with_a_taken_name_are_refused() -> None:
    registry = Registry()
    with pytest.raises(InvalidArgumentError, match="'any' names no operator"):
        registry.add_backend_pattern("mine", wildcard() | wildcard(), name="any")
    registry.add_backend_pattern("mine", is_op("relu"), name="relu")
    with pytest.raises(InvalidArgumentError, match="has a pattern 'relu' already"):
        registry.add_backend_pattern("mine", is_op("relu"), name="relu")
    with pytest.raises(InvalidArgumentError, match="most must be 1 to 64, not 0"):
        repeated(is_op("relu"), most=0)


class AnyRule:
    """Fuses whatever it meets, but for one operator."""

    def op_rule(self, network: Network, at: int) -> bool:
        return network.operator(at).target != GELU

    def fusion_rule(self, network: Network, group: Operators, source: int, sink: int) -> bool:
        return len(group) < 5 and network.operator(sink).kind is OperatorKind.ELEMENTWISE


def test_a_rule_grows_past_branches_that_meet_again() -> None:
    network = Network(make_graph([[], [0], [0], [1, 2], [3]], [CONV, RELU, RELU, ADD, GELU]))
    sets = set(generate(network, AnyRule()))
    assert frozenset({0, 1, 2, 3}) in sets
    assert not any(4 in each for each in sets)
    assert frozenset({0, 1}) not in sets


@pytest.mark.parametrize("first_seed", range(0, 600, 50))
def test_all_that_is_found_can_be_a_kernel(first_seed: int) -> None:
    """One sink, nothing escapes, no path leaves and comes back, whatever rule and patterns say."""
    for seed in range(first_seed, first_seed + 50):
        network = Network(random_graph(seed, most=12))
        registry = Registry()
        registry.add_backend_pattern_rule("mine", AnyRule())
        registry.add_backend_pattern("mine", is_op("relu")(random_pattern(random.Random(seed), 3)), name="random")
        for match in registry.matches(network, [BACKEND]).found:
            assert len(ways_out(network, match.operators)) == 1
            assert not comes_back(network, match.operators)


def random_pattern(generator: random.Random, depth: int) -> Pattern:
    if depth == 0 or generator.random() < 0.3:
        return wildcard()
    below = random_pattern(generator, depth - 1)
    match generator.randrange(4):
        case 0:
            return is_op(generator.choice(["relu", "gelu"]))(below)
        case 1:
            return is_op("add")(below, random_pattern(generator, depth - 1))
        case 2:
            return repeated(is_op("relu") | is_op("gelu"), most=3, start=below)
        case _:
            return is_op("convolution") | is_op("relu")(below)


def comes_back(network: Network, operators: Operators) -> bool:
    """Whether some path leaves a set and enters it again, by trying all paths."""
    count = len(network.graph.operators)
    paths = [(at,) for at in range(count)]
    while paths:
        path = paths.pop()
        inside = [at in operators for at in path]
        if any(was and not now for was, now in pairwise(inside)) and inside[-1] and inside[0]:
            return True
        paths += [(*path, reader) for reader in network.successors[path[-1]]]
    return False
