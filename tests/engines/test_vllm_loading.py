"""What the real vLLM loads that Headway's own engine lacks, and what it refuses: `make test-vllm`."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import psutil
import pytest
import pytest_asyncio
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Gemma2Config

from headway.checkpoint.model_directory import read_checkpoint
from headway.core.engine_kind import EngineKind
from headway.core.errors import HeadwayError
from headway.core.latency import LatencyModel
from headway.core.plan.serving import EngineLimits
from headway.planner.serving.batching import choose_batching
from headway.rpc.status import error_from_rpc
from headway.v1 import worker_pb2, worker_pb2_grpc
from tests.checkpoints import edit_json, make_checkpoint, make_other
from tests.engines.vllm_worker import VLLM_PYTHON, vllm_worker
from tests.engines.worker import PROMPT, EngineWorker, load, sequence

pytestmark = pytest.mark.asyncio(loop_scope="module")

GREEDY = {"temperature": 0.0}
_DEFAULTS = """
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.usage.usage_lib import UsageContext
defaults = [AsyncEngineArgs.get_batch_defaults(number) for number in (1, 2)]
print(*(tokens[UsageContext.OPENAI_API_SERVER] for tokens, _ in defaults))
"""
_QUANTISED = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True, "dynamic": False},
            "input_activations": {
                "num_bits": 8,
                "type": "int",
                "strategy": "token",
                "symmetric": True,
                "dynamic": True,
            },
        }
    },
}
"""As llm-compressor writes it for weights and activations of eight bits."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator["worker_pb2_grpc.WorkerServiceAsyncStub"]:
    async with vllm_worker(tmp_path_factory.mktemp("vllm")) as stub:
        yield stub


async def tokens_of(stub: "worker_pb2_grpc.WorkerServiceAsyncStub", directory: Path) -> list[int]:
    """A greedy answer of the model there, which is unloaded afterwards."""
    await load(stub, directory, engine="vllm", engine_args="--enforce-eager")
    (answer,) = await EngineWorker(EngineKind.VLLM, stub).generate(sequence(max_tokens=16, **GREEDY))
    await stub.UnloadModel(worker_pb2.UnloadModelRequest(model="tiny"))
    assert answer.error is None
    return answer.tokens


async def test_another_family_gives_the_tokens_of_transformers(
    stub: "worker_pb2_grpc.WorkerServiceAsyncStub", tmp_path: Path
) -> None:
    directory = make_other(
        tmp_path / "gemma",
        Gemma2Config,
        vocab_size=512,
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_size=112,
        max_position_embeddings=1024,
        sliding_window=64,
        initializer_range=0.15,
    )
    network = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager")
    expected = network.generate(torch.tensor([PROMPT]), max_new_tokens=16, min_new_tokens=16, do_sample=False)
    assert await tokens_of(stub, directory) == expected[0, len(PROMPT) :].tolist()


async def test_a_quantised_checkpoint_counts_as_its_files_do(
    stub: "worker_pb2_grpc.WorkerServiceAsyncStub", tmp_path: Path
) -> None:
    directory = make_checkpoint(tmp_path / "int8", "llama", head_dim=32, max_position_embeddings=1024)
    edit_json(directory / "config.json", quantization_config=_QUANTISED)
    path = directory / "model.safetensors"
    weights = load_file(path)
    for name in [name for name in weights if name.endswith("_proj.weight")]:
        scale = weights[name].abs().amax(1, keepdim=True) / 127
        weights[f"{name}_scale"] = scale
        weights[name] = (weights[name] / scale).round().to(torch.int8)
    save_file(weights, path, metadata={"format": "pt"})
    spec = read_checkpoint(directory, engine=EngineKind.VLLM).spec
    assert spec.weight_bytes == path.stat().st_size
    assert len(await tokens_of(stub, directory)) == 16


async def test_a_step_takes_as_many_tokens_as_in_vllms_own_server() -> None:
    command = [VLLM_PYTHON, "-c", _DEFAULTS]
    asked = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    slow = LatencyModel(
        base_s=1.0, per_prefill_token_s=1.0, per_prefill_pair_s=0.0, per_decode_s=1.0, per_context_token_s=0.0
    )
    chosen = [
        choose_batching(EngineLimits(tp=tp), device="cpu", estimate=slow, engine=EngineKind.VLLM) for tp in (1, 2)
    ]
    assert [each.max_num_batched_tokens for each in chosen] == [int(each) for each in asked.stdout.split()[-2:]]


async def refusal(stub: "worker_pb2_grpc.WorkerServiceAsyncStub", directory: Path, engine_args: str) -> HeadwayError:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await load(stub, directory, engine="vllm", engine_args=f"--enforce-eager {engine_args}")
    return error_from_rpc(refused.value)


@pytest.mark.parametrize(
    ("engine_args", "words"),
    [
        pytest.param("--no-such-flag", "unrecognized arguments: --no-such-flag", id="unknown"),
        pytest.param("--max-lora-rank many", "argument --max-lora-rank", id="no-number"),
        pytest.param("--quantization awq", "awq", id="not-for-this-model"),
    ],
)
async def test_arguments_that_vllm_refuses_are_told_once_in_its_words(
    stub: "worker_pb2_grpc.WorkerServiceAsyncStub", tiny: Path, engine_args: str, words: str
) -> None:
    error = await refusal(stub, tiny, engine_args)
    assert error.message.startswith("vLLM ")
    assert words in error.message
    assert error.message.count("vLLM refuses") + error.message.count("vLLM cannot load") == 1
    assert "Traceback" not in error.message


async def test_an_engine_that_dies_at_load_says_why_and_the_worker_loads_the_next(
    stub: "worker_pb2_grpc.WorkerServiceAsyncStub", tiny: Path, tmp_path: Path
) -> None:
    broken = shutil.copytree(tiny, tmp_path / "broken")
    (weights,) = broken.glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1000])
    error = await refusal(stub, broken, "")
    assert error.message.startswith("vLLM cannot load 'tiny': ")
    assert "incomplete" in error.message.lower()
    assert "Engine core initialization failed" not in error.message
    assert len(await tokens_of(stub, tiny)) == 16


async def test_a_step_that_never_ends_ends_the_worker(tiny: Path, tmp_path: Path) -> None:
    async with vllm_worker(tmp_path) as stub:
        await load(stub, tiny, engine="vllm", engine_args="--enforce-eager", step_timeout_s=5.0)
        worker = EngineWorker(EngineKind.VLLM, stub)
        (answer,) = await worker.generate(sequence(max_tokens=3, **GREEDY))
        assert len(answer.tokens) == 3
        living = [each for each in psutil.Process().children(recursive=True) if each.status() != psutil.STATUS_ZOMBIE]
        (engine,) = [process for process in living if process.name().startswith("VLLM::EngineCor")]
        engine.suspend()
        with pytest.raises(grpc.aio.AioRpcError) as lost:
            await worker.generate(sequence(**GREEDY))
        assert lost.value.code() is grpc.StatusCode.UNAVAILABLE
        engine.resume()
        await asyncio.to_thread(engine.wait, 60)
    assert "a step of tiny has taken over 5 s" in (tmp_path / "worker.log").read_text()
