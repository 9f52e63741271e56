"""`models.yaml` and `cluster.yaml`: what they may hold, and how faults in them are told."""

import pytest

from headway.core.catalogue import built_in_catalogue
from headway.core.cluster_file import read_cluster_file
from headway.core.errors import InvalidArgumentError
from headway.core.models_file import ModelOrigin, read_models_file
from headway.core.node_span import NodeLink
from headway.core.placement_problem import ServingCluster, TokenLengths
from headway.rpc.convert import from_pb, to_pb
from headway.v1 import placement_pb2


def test_models_are_read_with_their_copies() -> None:
    text = """
models:
  - {name: chat, count: 2, profile: bert-1.3b, share: 3, slo: 250 ms}
  - {name: code, capture: "zoo:bert-base", seq: 512, dtype: float16}
"""
    chat, again, code = read_models_file(text, file="models.yaml")
    assert (chat.name, again.name) == ("chat-0", "chat-1")
    assert (chat.origin, chat.source, chat.share, chat.slo_s) == (ModelOrigin.PROFILE, "bert-1.3b", 3.0, 0.25)
    assert code.origin is ModelOrigin.CAPTURE
    assert code.architecture == "zoo:bert-base, 512 tokens, float16"
    assert code.place == "models.yaml, line 4"


def test_a_language_model_has_lengths_and_objectives_for_its_tokens() -> None:
    text = """
models:
  - {name: chat, generate: ./llama, prompt: 700 cv 0.8, ttft: 300 ms, tpot: 40 ms}
  - {name: usual, generate: ./llama, slo: 5 s}
"""
    chat, usual = read_models_file(text, file="models.yaml")
    assert (chat.origin, chat.source, chat.architecture) == (ModelOrigin.GENERATE, "./llama", "./llama")
    assert (chat.prompt, chat.output) == (TokenLengths(mean=700.0, cv=0.8), TokenLengths(mean=128.0))
    assert (chat.ttft_s, chat.tpot_s, chat.slo_s) == (0.3, 0.04, None)
    assert (usual.prompt, usual.slo_s) == (TokenLengths(mean=512.0), 5.0)


def test_a_model_may_say_which_engine_computes_it() -> None:
    text = "models:\n- {name: a, generate: d, engine: vllm, engine_args: --enforce-eager}\n- {name: b, generate: d}\n"
    first, second = read_models_file(text, file="models.yaml")
    assert (first.engine, first.engine_args, first.architecture) == ("vllm", "--enforce-eager", "d, on vllm")
    assert (second.engine, second.engine_args, second.architecture) == (None, None, "d")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("models:\n- {name: a, generate: t, engine: sglang}\n", "models[0].engine should be headway or vllm"),
        ("models:\n- {name: a, profile: t, engine: vllm}\n", "models[0].engine is of models that generate"),
        ("models:\n- {name: a, generate: t, engine_args: --x}\n", "models[0].engine_args is wrong"),
        (
            "models:\n- {name: a, generate: t, engine: vllm, engine_args: --seed 1}\n",
            "models[0].engine_args is wrong: --engine-args '--seed': that is decided by the seed of each request",
        ),
        ("models:\n- {name: a}\n", "line 2: models[0] should have a name, and either"),
        ("models:\n- {name: a, profile: t, capture: zoo:t}\n", "models[0] should have a name, and either"),
        ("models:\n- {name: a, profile: t, slo: 5}\n", "line 2: models[0].slo should be a time"),
        ("models:\n- {name: a, profile: t, slo: nan s}\n", "models[0].slo should be positive and finite"),
        ("models:\n- {name: a, profile: t, share: -1}\n", "models[0].share should be a positive number, not '-1'"),
        ("models:\n- {name: a, profile: t, count: 0}\n", "models[0].count should be a whole number from 1"),
        ("models:\n- {name: a, profile: t, seq: 8}\n", "models[0].seq is of captured models"),
        ("models:\n- {name: a, capture: t, dtype: int4}\n", "models[0].dtype should be float16"),
        ("models:\n- {name: a, profile: t, ttft: 1 s}\n", "models[0].ttft is of models that generate"),
        ("models:\n- {name: a, generate: t, output: many}\n", "models[0].output should be tokens, as 512 or"),
        ("models:\n- {name: a, profile: t, rate: 1}\n", "models[0].rate is unknown"),
        ("models:\n- {name: '', profile: t}\n", "models[0].name is empty"),
        ("models:\n- {name: a, profile: t}\n- {name: a, profile: t}\n", "has the name 'a' twice"),
        ("models: []\n", "models is empty"),
        ("models: 3\n", "models should be a list"),
        ("{}", "lacks 'models'"),
        ("models: [", "m.yaml, line"),
    ],
)
def test_a_fault_in_models_is_told_with_its_place(text: str, told: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        read_models_file(text, file="m.yaml")
    assert caught.value.message.startswith("m.yaml, line")
    assert told in caught.value.message
    assert caught.value.hint


def test_a_cluster_takes_its_memory_from_the_catalogue() -> None:
    text = "device: V100-16\nnum_devices: 4\n"
    (cluster,) = read_cluster_file(text, file="cluster.yaml", catalogue=built_in_catalogue())
    assert (cluster.num_devices, cluster.devices_per_node, cluster.memory_bytes) == (4, 4, 16 * 10**9 - 2**30)
    text += "devices_per_node: 2\nmemory_per_device: 13 GiB\n"
    (cluster,) = read_cluster_file(text, file="cluster.yaml", catalogue=built_in_catalogue())
    assert (cluster.devices_per_node, cluster.memory_bytes) == (2, 13 * 2**30)


def test_a_cluster_may_let_groups_span_nodes_over_a_link_of_the_catalogue() -> None:
    text = "device: V100-16\nnum_devices: 4\ndevices_per_node: 2\nacross_nodes: InfiniBand HDR\n"
    (cluster,) = read_cluster_file(text, file="cluster.yaml", catalogue=built_in_catalogue())
    assert cluster.across_nodes == NodeLink(name="InfiniBand HDR", latency_s=3e-5, bytes_per_s=2e10)
    assert from_pb(to_pb(cluster, placement_pb2.ServingCluster), ServingCluster) == cluster


def test_a_cluster_may_have_several_kinds_of_devices() -> None:
    text = "kinds:\n  - {device: V100-16, num_devices: 8}\n  - {device: A100-40, num_devices: 4, devices_per_node: 2}\n"
    found = read_cluster_file(text, file="cluster.yaml", catalogue=built_in_catalogue())
    assert [(each.device, each.num_devices, each.devices_per_node) for each in found] == [
        ("V100-16", 8, 8),
        ("A100-40", 4, 2),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("kinds:\n  - {device: V100-16, num_devices: 4}\nnum_devices: 4\n", "should stand alone"),
        ("kinds:\n  - {device: A10, num_devices: 1}\n  - {device: A10, num_devices: 1}\n", "names 'A10' twice"),
        ("device: Z80\nnum_devices: 4\n", "line 1: device names 'Z80'"),
        ("device: V100-16\nnum_devices: 0\n", "line 2: num_devices should be a whole number from 1 to 100000, not '0'"),
        ("device: V100-16\nnum_devices: 4\nmemory_per_device: 4\n", "line 3: memory_per_device should be"),
        ("device: V100-16\nnum_devices: 4\nnodes: 4\n", "line 3: nodes is unknown"),
        ("device: CPU\nnum_devices: 4\n", "line 1: device is 'CPU', of which the catalogue has no memory"),
        (
            "device: V100-16\nnum_devices: 4\nacross_nodes: string\n",
            "line 3: across_nodes names 'string', which is no link",
        ),
        ("num_devices: 4\n", "lacks 'device'"),
    ],
)
def test_a_fault_in_a_cluster_is_told_with_its_place(text: str, told: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        read_cluster_file(text, file="c.yaml", catalogue=built_in_catalogue())
    assert told in caught.value.message
    assert caught.value.hint
