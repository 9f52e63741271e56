"""What the models of the zoo and checkpoints are trained for."""

import json
from pathlib import Path

import pytest

from headway.core.capture import CaptureRequest
from headway.core.graph import Graph, TensorRole
from headway.profiler.capture.capture import capture
from tests.profiler.capture.zoo import FAMILIES, captured

WITHOUT_CLASSES = {"candle-uno-16-small", "dcgan-small", "dlrm-small", "tessel-flava-small", "two-branch-small"}
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 16,
    "rms_norm_eps": 1e-6,
    "torch_dtype": "bfloat16",
}


def outputs(graph: Graph) -> list[tuple[tuple[int, ...], str]]:
    return [(tensor.shape, tensor.dtype) for tensor in graph.tensors if tensor.role is TensorRole.OUTPUT]


def inputs(graph: Graph) -> list[str]:
    return [tensor.name for tensor in graph.tensors if tensor.role is TensorRole.INPUT]


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in WITHOUT_CLASSES])
def test_a_model_of_classes_is_trained_by_cross_entropy(name: str) -> None:
    graph = captured(name)
    assert outputs(graph) == [((), "float32")]
    assert inputs(graph)[-1] == "targets"
    assert {"aten._log_softmax.default", "aten.nll_loss_forward.default"} <= {o.target for o in graph.operators}
    scored = next(operator for operator in graph.operators if operator.target == "aten._log_softmax.default")
    assert not scored.is_backward


@pytest.mark.parametrize("name", sorted(WITHOUT_CLASSES))
def test_other_models_are_trained_by_the_sum_of_what_they_give(name: str) -> None:
    assert name in FAMILIES
    assert "targets" not in inputs(captured(name))


def test_a_forward_pass_has_no_targets() -> None:
    graph = captured("tessel-mt5-1.8b-small", train=False)
    assert "targets" not in inputs(graph)
    assert outputs(graph) == [((2 * 16, 64), "float32")]


def test_a_checkpoint_is_trained_for_the_next_token_in_float32(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    request = CaptureRequest(source=str(tmp_path), batch=2, train=True)
    graph = capture(request, report=lambda _: None).graph
    assert graph is not None
    assert outputs(graph) == [((), "float32")]
    assert graph.tensors_by_name()["targets"].shape == (2, 16)
    scored = next(operator for operator in graph.operators if operator.target == "aten._log_softmax.default")
    assert graph.tensors_by_name()[scored.outputs[0]].dtype == "float32"
    assert {graph.tensors_by_name()[name].dtype for name in graph.gradients} == {"float32"}
