"""Graphs as documents and messages, their hash and their totals."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.codec import from_document, to_document
from headway.core.errors import InvalidArgumentError
from headway.core.graph import Graph, Operator, OperatorKind, TensorRole, TensorSpec
from headway.core.iteration import Access, Dim, IterationSpace, Reduction
from headway.rpc.convert import from_pb, to_pb
from headway.v1 import profiler_pb2

names = st.text("abcdefgh._01", min_size=1, max_size=8)
counts = st.integers(0, 2**62)
tuples_of_names = st.lists(names, max_size=3).map(tuple)
accesses = st.builds(
    Access,
    tensor=names,
    dims=st.lists(st.sampled_from(["", "m", "m*k", "y+r"])).map(tuple),
    reduced=st.dictionaries(names, st.sampled_from(Reduction), max_size=2),
)
spaces = st.builds(
    IterationSpace,
    dims=st.lists(st.builds(Dim, names, st.integers(1, 2**40)), max_size=3).map(tuple),
    reads=st.lists(accesses, max_size=2).map(tuple),
    writes=st.lists(accesses, max_size=2).map(tuple),
    reduced=tuples_of_names,
)
operators = st.builds(
    Operator,
    name=names,
    kind=st.sampled_from(OperatorKind),
    target=names,
    module=names,
    inputs=tuples_of_names,
    outputs=tuples_of_names,
    flops=counts,
    bytes_read=counts,
    bytes_written=counts,
    space=st.none() | spaces,
    is_backward=st.booleans(),
    forward=names,
    attributes=st.dictionaries(names, st.text(max_size=5), max_size=2),
)
tensors = st.builds(
    TensorSpec,
    name=names,
    shape=st.lists(st.integers(0, 2**30), max_size=3).map(tuple),
    dtype=st.sampled_from(["float32", "bfloat16", "int64", "bool"]),
    role=st.sampled_from(TensorRole),
    primal=names,
)
graphs = st.builds(
    Graph,
    name=names,
    is_training=st.booleans(),
    tensors=st.lists(tensors, max_size=3).map(tuple),
    operators=st.lists(operators, max_size=3).map(tuple),
    saved=tuples_of_names,
    trained=tuples_of_names,
    gradients=tuples_of_names,
    batch=st.integers(0, 2**30),
)


@settings(max_examples=50, deadline=None)
@given(graphs)
def test_a_graph_survives_json_and_protobuf(graph: Graph) -> None:
    again = from_document(Graph, json.loads(json.dumps(to_document(graph))))
    assert again == graph
    message = to_pb(graph, profiler_pb2.Graph)
    received = from_pb(profiler_pb2.Graph.FromString(message.SerializeToString()), Graph)
    assert received == graph
    assert received.content_hash == again.content_hash == graph.content_hash


def operator(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], **fields: object) -> Operator:
    given = {"kind": OperatorKind.MATMUL, "target": "aten.mm.default", "bytes_read": 0, "bytes_written": 0} | fields
    return Operator(name=name, inputs=inputs, outputs=outputs, **given)  # type: ignore[arg-type]


def tensor(name: str, size: int, role: TensorRole, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name=name, shape=(size,), dtype=dtype, role=role)


CHAIN = Graph(
    name="chain",
    is_training=False,
    tensors=(
        tensor("w", 100, TensorRole.PARAMETER, "bfloat16"),
        tensor("x", 50, TensorRole.INPUT),
        tensor("a", 10, TensorRole.ACTIVATION),
        tensor("b", 20, TensorRole.ACTIVATION),
        tensor("c", 5, TensorRole.OUTPUT),
    ),
    operators=(
        operator("a", ("x", "w"), ("a",), flops=7),
        operator("b", ("a",), ("b",), flops=5),
        operator("c", ("b",), ("c",), flops=3, is_backward=True),
    ),
    trained=("w",),
    saved=("a",),
)


def test_totals() -> None:
    assert (CHAIN.parameters, CHAIN.parameter_bytes, CHAIN.gradient_bytes) == (100, 200, 200)
    assert CHAIN.optimizer_bytes == 100 * (4 + 4 + 4)  # two moments and, of a short dtype, the parameter in float32
    assert (CHAIN.flops, CHAIN.forward_flops) == (15, 12)
    assert CHAIN.activation_bytes == 4 * (10 + 20)
    assert replace(CHAIN, is_training=True).activation_bytes == 4 * 10


def test_the_hash_is_of_all_but_the_name_and_the_same_in_every_process() -> None:
    assert replace(CHAIN, name="other").content_hash == CHAIN.content_hash
    assert replace(CHAIN, saved=()).content_hash != CHAIN.content_hash
    script = "from tests.core.test_graph import CHAIN; print(CHAIN.content_hash)"
    for seed in ("1", "2"):
        result = subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        assert result.stdout.strip() == CHAIN.content_hash


def test_a_document_that_is_no_graph_names_the_field() -> None:
    document = to_document(CHAIN)
    document["operators"][1]["kind"] = "magic"
    with pytest.raises(InvalidArgumentError, match=r"Graph.operators\[1\].kind"):
        from_document(Graph, document)
