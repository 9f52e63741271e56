"""Which gradient belongs to which tensor of the forward pass."""

from headway.core.graph import Graph, Operator, TensorRole


def primals(graph: Graph) -> dict[str, str]:
    """Returns for each gradient tensor the parameter or activation that it is the gradient of, or a contribution to.

    Of a tensor that several operators read, the gradients through each of them and their partial sums are contributions
    to its own. One gradient can be that of several tensors, as an addition hands on that of its result: then it counts
    as that of the last of them. A gradient has as many elements as its tensor. These are left out: what stays within
    the backward pass of one forward operator, and gradients of slices and of broadcast tensors.
    """
    tensors = graph.tensors_by_name()
    found = {tensor.name: tensor.primal for tensor in graph.tensors if tensor.primal}
    for operator in reversed(graph.operators):
        primal = found.get(operator.outputs[0]) if operator.outputs else None
        if primal is not None and is_accumulation(operator):
            for name in operator.inputs:
                is_gradient = tensors[name].role is TensorRole.GRADIENT
                if is_gradient and tensors[name].num_elements == tensors[primal].num_elements:
                    found.setdefault(name, primal)
    return found


def is_accumulation(operator: Operator) -> bool:
    """Whether it adds up gradients of one tensor."""
    return operator.is_backward and operator.target.startswith("aten.add.")


def contributions(graph: Graph) -> dict[str, str]:
    """Returns for each contribution to a parameter's gradient the parameter: what several operators that read it give,
    which other operators add up. Stages that share a parameter add up their own, and join the sums once an iteration.
    """
    tensors, whole = graph.tensors_by_name(), set(graph.gradients)
    return {
        name: primal
        for name, primal in primals(graph).items()
        if tensors[primal].role is TensorRole.PARAMETER and name not in whole
    }
