"""What autograd says of a backward pass while it is traced: which node is the gradient of which result."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import fx
from torch._functorch._aot_autograd.logging_utils import setup_stacktrace_preservation_hooks
from torch.autograd.graph import Node
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot

GradientOf = dict[fx.Node, tuple[int, int]]
"""Of a node that is a gradient, the autograd number of the operator whose result has it, and which of its results.

Where results share a gradient, as those of a sum and its operands do, that of the last operator.
"""


def gradients(loss: torch.Tensor, parameters: Sequence[torch.Tensor], found: GradientOf) -> list[torch.Tensor | None]:
    """Traces the gradients of a loss, with every node of the backward pass numbered as its forward operator is.

    Args:
        found: is filled with what gradients the nodes of the trace are.
    """
    root = loss.grad_fn
    assert root is not None
    setup_stacktrace_preservation_hooks([root])
    for node in _reachable(root):
        node.register_prehook(_recorder(node._sequence_nr(), found))  # noqa: SLF001 - its only name
    return list(torch.autograd.grad(loss, parameters, allow_unused=True))


def _reachable(root: Node) -> Iterator[Node]:
    seen, waiting = {root}, deque([root])
    while waiting:
        node = waiting.popleft()
        yield node
        following = dict.fromkeys(after for after, _ in node.next_functions if after is not None and after not in seen)
        seen.update(following)
        waiting.extend(following)


def _recorder(sequence_nr: int, found: GradientOf) -> Callable[[Sequence[torch.Tensor | None]], None]:
    """Autograd calls it with the gradients of an operator's results, each summed over all that read the result."""

    def record(result_gradients: Sequence[torch.Tensor | None]) -> None:
        mode = get_proxy_mode()
        assert mode is not None
        for index, gradient in enumerate(result_gradients):
            if gradient is not None:
                slot = get_proxy_slot(gradient, mode.tracer, None)
                if slot is not None:
                    found.setdefault(slot.proxy.node, (sequence_nr, index))

    return record
