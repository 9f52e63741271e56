"""A model as it is measured: its distinct operators, how often each runs, and the layers that they make up."""

from dataclasses import dataclass, field

Counts = dict[str, int]
"""How often programs run, by their content hash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorGroup:
    """Equal operators; figures are of one of them.

    Attributes:
        kind: an `OperatorKind`, or 'optimizer' for Adam's update of one parameter.
        phase: 'forward', 'backward' or 'optimizer'.
        shapes: of its inputs, in words.
        extents: of a product its rows, columns and the dimension that is summed over; else ().
        program: content hash of what is timed.
    """

    target: str
    kind: str
    phase: str
    shapes: str
    dtype: str
    count: int
    flops: int
    bytes_moved: int
    extents: tuple[int, ...] = ()
    program: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Modules that a model repeats, or what is between them.

    Attributes:
        forward, backward, optimizer: its operators.
        activation_bytes: in training what it keeps for the backward pass; else the most that it holds at a time.
        forward_program, backward_program: the layer as a whole; empty where it has no such pass.
    """

    name: str
    weight_bytes: int
    activation_bytes: int
    forward: Counts = field(default_factory=dict)
    backward: Counts = field(default_factory=dict)
    optimizer: Counts = field(default_factory=dict)
    forward_program: str = ""
    backward_program: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilingUnits:
    """Attributes:
    graph_hash: of the captured graph.
    activation_bytes: as of the graph.
    program: the whole pass, all views included, without the optimiser.
    stages: consecutive layers that are timed as one, where that was asked for.
    """

    model: str
    is_training: bool
    graph_hash: str
    parameters: int
    weight_bytes: int
    activation_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    operators: tuple[OperatorGroup, ...]
    layers: tuple[Layer, ...]
    program: str
    stages: tuple[Layer, ...] = ()

    def program_names(self) -> dict[str, str]:
        """Returns all programs, with names for messages and tables."""
        names = {self.program: f"all of {self.model}"}
        for layer in (*self.layers, *self.stages):
            names |= {layer.backward_program: f"{layer.name} backward", layer.forward_program: layer.name}
        names |= {group.program: f"{group.target} {group.shapes}" for group in self.operators}
        names.pop("", None)
        return names

    def members(self) -> dict[str, Counts]:
        """Returns the operators that each program of several operators consists of."""
        total: Counts = {}
        found: dict[str, Counts] = {}
        for layer in (*self.layers, *self.stages):
            found |= {layer.forward_program: layer.forward, layer.backward_program: layer.backward}
        for group in self.operators:
            if group.phase != "optimizer":
                total[group.program] = total.get(group.program, 0) + group.count
        found[self.program] = total
        found.pop("", None)
        return found
