"""Pattern rules: a backend's fusion engine in Python, and the generator that finds all that it may fuse in a graph
(Collage section 2.3, figure 2.4).
"""

from collections.abc import Iterator
from typing import Protocol

from headway.planner.backends.network import Network, Operators


class PatternRule(Protocol):
    """What a backend runs, and what it fuses. Its name is its class's."""

    def op_rule(self, network: Network, at: int) -> bool:
        """Whether the backend runs an operator at all."""

    def fusion_rule(self, network: Network, group: Operators, source: int, sink: int) -> bool:
        """Whether a group may grow to the next operator that all paths from it meet in.

        Args:
            group: what is fused already.
            source: the operator that leaves the group.
            sink: the post-dominator of `source`; `network.between(source, sink)` are the operators on the way, itself
                one of them. Each has passed `op_rule`.
        """


def generate(network: Network, rule: PatternRule) -> Iterator[Operators]:
    """Yields every set of operators that a rule allows and that can be one kernel, each once.

    It begins with each operator as the seed, grows to its next post-dominator, and goes on while the rule allows that.
    A set from which more than one result would leave is grown on, as it may close again.
    """
    seen: set[Operators] = set()
    allowed = [rule.op_rule(network, at) for at in range(len(network.graph.operators))]
    for seed, is_allowed in enumerate(allowed):
        if not is_allowed:
            continue
        group, source = frozenset({seed}), seed
        while True:
            if group not in seen and not network.why_illegal(group):
                seen.add(group)
                yield group
            sink = network.post_dominators[source]
            if sink is None:
                break
            new = network.between(source, sink)
            if not all(allowed[at] for at in new) or not rule.fusion_rule(network, group, source, sink):
                break
            group, source = group | new, sink
