"""What the backends that come with Headway fuse."""

from headway.core.backend import EAGER
from headway.core.graph import OperatorKind
from headway.planner.backends.network import Network, Operators
from headway.planner.backends.registry import Registry

_ANCHORS = frozenset({OperatorKind.MATMUL, OperatorKind.BATCHED_MATMUL, OperatorKind.CONVOLUTION})
_EPILOGUES = frozenset({OperatorKind.ELEMENTWISE, OperatorKind.NORMALIZATION})
_ACTIVATIONS = frozenset({"aten.relu.default", "aten.gelu.default"})
_MOST = 8


class SingleOperators:
    """Runs anything, and fuses nothing."""

    def op_rule(self, network: Network, at: int) -> bool:  # noqa: ARG002 - anything
        return True

    def fusion_rule(self, network: Network, group: Operators, source: int, sink: int) -> bool:  # noqa: ARG002
        return False


class Epilogues:
    """Fuses what works element by element, and normalisations, behind a product, a convolution or each other."""

    def op_rule(self, network: Network, at: int) -> bool:
        return network.operator(at).kind is not OperatorKind.UNKNOWN

    def fusion_rule(self, network: Network, group: Operators, source: int, sink: int) -> bool:
        new = network.between(source, sink)
        kinds = {network.operator(at).kind for at in new}
        has_anchor = any(network.operator(at).kind in _ANCHORS | _EPILOGUES for at in group)
        return has_anchor and kinds <= _EPILOGUES and len(group) + len(new) <= _MOST


class Products:
    """A product with an activation behind it: whether its weight is constant shows when it is compiled."""

    def op_rule(self, network: Network, at: int) -> bool:
        operator = network.operator(at)
        return operator.kind is OperatorKind.MATMUL or operator.target in _ACTIVATIONS

    def fusion_rule(self, network: Network, group: Operators, source: int, sink: int) -> bool:  # noqa: ARG002
        is_product = network.operator(source).kind is OperatorKind.MATMUL
        return is_product and network.operator(sink).target in _ACTIVATIONS


def known_fusions() -> Registry:
    """The registry of the backends that come with Headway."""
    registry = Registry()
    registry.add_backend_pattern_rule(EAGER, SingleOperators())
    for backend in ("inductor", "onnxruntime", "openvino", "tensorrt"):
        registry.add_backend_pattern_rule(backend, Epilogues())
    registry.add_backend_pattern_rule("headway", Products())
    return registry
