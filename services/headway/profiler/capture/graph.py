"""Builds a `core.graph.Graph` from a trace."""

import operator
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from headway.core.graph import Graph, Operator, OperatorKind, TensorRole, TensorSpec, dtype_bytes
from headway.profiler.capture.call import Call, OperatorCost
from headway.profiler.capture.rules import base_name, rule_of
from headway.profiler.capture.trace import Trace
from headway.profiler.capture.view import View
from headway.profiler.capture.viewing import follow, is_view

_ROUTED = (OperatorKind.GATHER, OperatorKind.SCATTER)


def build_graph(trace: Trace, *, name: str, is_training: bool, batch: int = 0) -> Graph:
    """Builds the graph in the order of the trace; views vanish into the operands of the operators that read them."""
    builder = _Builder(trace)
    for node in trace.graph.graph.nodes:
        builder.visit(node)
    return replace(builder.graph(name, is_training=is_training), batch=batch)


@dataclass
class _Builder:
    trace: Trace
    tensors: dict[str, TensorSpec] = field(default_factory=dict)
    operators: list[Operator] = field(default_factory=list)
    values: dict[fx.Node, Any] = field(default_factory=dict)
    results: list[Any] = field(default_factory=list)
    forwards: dict[int, Operator] = field(default_factory=dict)  # by autograd's sequence number
    order: dict[str, int] = field(default_factory=dict)  # position of each operator, by its name
    forward_of: dict[str, Operator | None] = field(default_factory=dict)  # of each backward operator, by its name
    makers: dict[str, Operator] = field(default_factory=dict)  # of each tensor, the operator that wrote it last
    versions: dict[str, str] = field(default_factory=dict)  # of a tensor that was written again, the newer one
    routed: set[str] = field(default_factory=set)  # tensors of indices that a sort gave
    numbered: dict[int, list[fx.Node]] = field(default_factory=dict)  # forward nodes by autograd's sequence number
    is_forward_over: bool = False  # whether nodes from here on are of the backward pass

    def visit(self, node: fx.Node) -> None:
        match node.op:
            case "placeholder":
                self.values[node] = self._source(node)
            case "get_attr":
                value = getattr(self.trace.graph, str(node.target))
                self.values[node] = self._tensor(node.name, value, TensorRole.BUFFER)
            case "output":
                self.results = [self.values.get(leaf) for leaf in node.args[0] if isinstance(leaf, fx.Node)]  # type: ignore[union-attr]
            case _:
                self.values[node] = self._compute(node)
                if not self._is_backward(node):
                    self.numbered.setdefault(node.meta.get("seq_nr", -1), []).append(node)

    def graph(self, name: str, *, is_training: bool) -> Graph:
        """Returns the graph; each tensor's role follows from where it is read and written."""
        made = {output for op in self.operators for output in op.outputs}
        backward = {output for op in self.operators if op.is_backward for output in op.outputs}
        outputs = {view.base for view in self.results[: self.trace.num_outputs] if view is not None} & made
        roles = dict.fromkeys(backward, TensorRole.GRADIENT) | dict.fromkeys(outputs, TensorRole.OUTPUT)
        forward = {o for op in self.operators if not op.is_backward for o in op.outputs}
        read = {i for op in self.operators if op.is_backward for i in op.inputs}
        held = {t.name for t in self.tensors.values() if t.role is TensorRole.ACTIVATION}
        gradients = tuple(view.base for view in self.results[self.trace.num_outputs :] if view is not None)
        primal = self._primals() | dict(zip(gradients, self.trace.trained, strict=True))
        return Graph(
            name=name,
            is_training=is_training,
            tensors=tuple(
                replace(tensor, role=roles.get(tensor.name, tensor.role), primal=primal.get(tensor.name, ""))
                for tensor in self.tensors.values()
            ),
            operators=tuple(self.operators),
            saved=tuple(sorted(forward & read & held)),
            trained=self.trace.trained,
            gradients=gradients,
        )

    def _primals(self) -> dict[str, str]:
        """Finds of each tensor that is a gradient the tensor that it is the gradient of; parts of tensors are left
        out."""
        found: dict[str, str] = {}
        for node, (number, index) in self.trace.gradient_of.items():
            gradient = self.values.get(node)
            primal = self._result(number, index, shape=tuple(map(int, node.meta["val"].shape)))
            if isinstance(gradient, View) and primal is not None and _is_whole(gradient) and _is_whole(primal):
                found.setdefault(gradient.base, primal.base)
        return found

    def _result(self, number: int, index: int, *, shape: tuple[int, ...]) -> View | None:
        """Finds a result of the operator with a number of autograd's; later ones without a gradient repeat it."""
        for node in self.numbered.get(number, ()):
            value = self.values[node]
            results = value if isinstance(value, tuple) else (value,)
            if index < len(results) and isinstance(view := results[index], View) and view.shape == shape:
                return view
        return None

    def _source(self, node: fx.Node) -> View:
        name = self.trace.names[len(self.values)]  # placeholders come first
        role = TensorRole.PARAMETER if name in self.trace.parameters else TensorRole.BUFFER
        return self._tensor(name, node.meta["val"], TensorRole.INPUT if name in self.trace.inputs else role)

    def _tensor(self, name: str, value: torch.Tensor, role: TensorRole) -> View:
        shape, dtype = tuple(map(int, value.shape)), str(value.dtype).removeprefix("torch.")
        self.tensors[name] = TensorSpec(name=name, shape=shape, dtype=dtype, role=role)
        return View.whole(name, shape, dtype)

    def _compute(self, node: fx.Node) -> Any:
        if node.target is operator.getitem:
            source, index = node.args
            return self.values[source][index]  # type: ignore[index]
        op = node.target
        assert isinstance(op, OpOverload), f"{op} in a trace to operators"
        arguments = self._arguments(op, node)
        changed = self._changed(op, arguments)
        if not op._schema.returns and not changed:  # noqa: SLF001 - a check, which costs nothing
            return None
        value = node.meta.get("val")
        if is_view(op):
            parts = value if isinstance(value, list | tuple) else (value,)
            return follow(op, arguments[0], arguments[1:], [tuple(map(int, part.shape)) for part in parts])
        outputs = tuple(self._version(node.name, view) for view in changed) or self._outputs(node.name, value)
        self._add(node, op, arguments, outputs)
        return outputs if isinstance(value, list | tuple) else outputs[0] if outputs else None

    def _arguments(self, op: OpOverload, node: fx.Node) -> list[Any]:
        arguments = []
        for i, argument in enumerate(op._schema.arguments):  # noqa: SLF001 - torch has no other way to ask
            given = node.args[i] if i < len(node.args) else node.kwargs.get(argument.name, argument.default_value)
            arguments.append(fx.node.map_arg(given, lambda leaf: self._newest(self.values[leaf])))
        return arguments

    def _newest(self, value: Any) -> Any:
        """A view of its tensor's latest version: what an operator writes in place is a new tensor from then on."""
        while isinstance(value, View) and value.base in self.versions:
            value = replace(value, base=self.versions[value.base])
        return value

    def _changed(self, op: OpOverload, arguments: list[Any]) -> list[View]:
        """Finds the arguments that an in-place operator writes."""
        pairs = zip(op._schema.arguments, arguments, strict=True)  # noqa: SLF001
        return [a for argument, a in pairs if argument.alias_info and argument.alias_info.is_write]

    def _version(self, name: str, view: View) -> View:
        """Makes a new version of the tensor behind a view once it is written."""
        source = self.tensors[view.base]
        name = name if name not in self.tensors else f"{name}.{view.base}"
        self.tensors[name] = replace(source, name=name, role=TensorRole.ACTIVATION)
        self.versions[view.base] = name
        return replace(view, base=name)

    def _outputs(self, name: str, value: Any) -> tuple[View | None, ...]:
        if not isinstance(value, list | tuple):
            return (self._tensor(name, value, TensorRole.ACTIVATION),) if isinstance(value, torch.Tensor) else ()
        return tuple(
            self._tensor(f"{name}.{i}", part, TensorRole.ACTIVATION) if isinstance(part, torch.Tensor) else None
            for i, part in enumerate(value)
        )

    def _add(self, node: fx.Node, op: OpOverload, arguments: list[Any], outputs: tuple[View | None, ...]) -> None:
        call = Call(name=base_name(op) or str(op), arguments=tuple(arguments), outputs=outputs)
        rule = rule_of(op)
        work = OperatorCost(kind=OperatorKind.UNKNOWN) if rule is None else rule(call)
        written = [view for view in outputs if view is not None]
        inputs, results = _bases(call.tensors), _bases(written)
        is_backward = self._is_backward(node)
        forward = self._forward(node, inputs) if is_backward else None
        made = Operator(
            name=node.name,
            kind=self._routed_kind(work.kind, call, results),
            target=str(op),
            module=forward.module if forward else _module(node),
            inputs=inputs,
            outputs=results,
            flops=work.flops,
            bytes_read=_read_bytes(call, work),
            bytes_written=sum(view.num_distinct * dtype_bytes(view.dtype) for view in written),
            space=work.space,
            is_backward=is_backward,
            forward=forward.name if forward else "",
            attributes=_attributes(op, arguments),
        )
        self.order[made.name] = len(self.operators)
        self.operators.append(made)
        self.makers |= dict.fromkeys(results, made)
        if is_backward:
            self.forward_of[made.name] = forward
        else:
            self.forwards.setdefault(node.meta.get("seq_nr", -1), made)  # later ones without a gradient repeat it

    def _is_backward(self, node: fx.Node) -> bool:
        """Whether it is behind the forward pass, which is traced before anything of the backward pass."""
        self.is_forward_over = self.is_forward_over or self._is_seed(node)
        return self.is_forward_over

    def _is_seed(self, node: fx.Node) -> bool:
        """Whether it is the gradient of the loss by itself, which autograd makes before its pass begins."""
        return node.target is torch.ops.aten.ones_like.default and node in self.trace.gradient_of

    def _routed_kind(self, kind: OperatorKind, call: Call, results: tuple[str, ...]) -> OperatorKind:
        """Classes gathers and scatters whose indices come from a sort as the dispatch of a mixture of experts."""
        integers = {v.base for v in call.tensors if "int" in v.dtype or v.dtype == "bool"}
        if kind is OperatorKind.SORT or (integers & self.routed and kind not in _ROUTED):
            self.routed |= {name for name in results if "int" in (dtype := self.tensors[name].dtype) or dtype == "bool"}
        return OperatorKind.DISPATCH if kind in _ROUTED and integers & self.routed else kind

    def _forward(self, node: fx.Node, inputs: tuple[str, ...]) -> Operator | None:
        """Finds the operator whose gradient a backward operator computes.

        Autograd numbers most of them. One that it does not, such as a sum of two gradients, belongs where what it reads
        does: to the first of these in the forward pass, whose gradient is computed last. The first one is the gradient
        of the last result.
        """
        is_sum = node.meta.get("is_gradient_acc", False)  # autograd gives it the number of the last forward operator
        number, _ = self.trace.gradient_of[node] if self._is_seed(node) else (node.meta.get("seq_nr", -1), 0)
        if not is_sum and (found := self.forwards.get(number)) is not None:
            return found
        makers = [self.makers[name] for name in inputs if name in self.makers]
        forwards = [forward for maker in makers if maker.is_backward and (forward := self.forward_of[maker.name])]
        if forwards:
            return min(forwards, key=lambda forward: self.order[forward.name])
        return next((o for o in reversed(self.operators) if not o.is_backward), None)


def _is_whole(view: View) -> bool:
    """Whether a view has all elements of its tensor, each once."""
    return prod(view.shape) == prod(view.base_shape) == view.num_distinct


def _module(node: fx.Node) -> str:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return stack[-1][0] if stack else ""


def _bases(views: Iterable[View]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(view.base for view in views))


def _read_bytes(call: Call, work: OperatorCost) -> int:
    """Bytes of the distinct elements that are read: of a tensor read through several views, no more than it has."""
    elements: dict[str, int] = {}
    limits: dict[str, tuple[int, int]] = {}
    for view in call.tensors:
        total = View.whole(view.base, view.base_shape, view.dtype).num_distinct
        limits[view.base] = total, dtype_bytes(view.dtype)
        elements[view.base] = min(total, elements.get(view.base, 0) + view.num_distinct)
    elements |= work.read_elements or {}
    return 0 if work.kind is OperatorKind.CREATE else sum(n * limits[base][1] for base, n in elements.items())


def _attributes(op: OpOverload, arguments: list[Any]) -> dict[str, str]:
    pairs = zip(op._schema.arguments, arguments, strict=True)  # noqa: SLF001
    return {
        argument.name: str(value)
        for argument, value in pairs
        if value is not None
        and value != argument.default_value
        and not isinstance(value, View | torch.device | torch.layout)
        and not (isinstance(value, list | tuple) and any(isinstance(item, View) for item in value))
    }
