"""What training does for GPUs, as far as a machine without one can tell."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from headway.core.errors import FailedPreconditionError
from headway.core.execution.mixed import in_bfloat16
from headway.core.program import Program
from headway.programs.attention import BACKWARD, FORWARD, attention, attention_backward, gpu_functions
from headway.programs.module import build_module
from headway.train.communicator import communicator
from headway.train.device import CPU, rank_device
from headway.train.host_staged import HostStaged
from tests.train.models import Gpt, Mt5, inputs
from tests.train.runs import captured
from tests.train.sliced import sliced_step

GPU = torch.device("cuda", 0)
LIMIT = timedelta(seconds=20)


def _programs() -> dict[str, Program]:
    gpt, mt5 = captured(Gpt(dropout=0.1), (2,), torch.float32), captured(Mt5(), (2,), torch.float32)
    whole = gpt.programs[2]
    plain = captured(Gpt(), (2,), torch.float32)
    sliced = sliced_step(plain.model, tuple(inputs(plain.model, 2).values()), (3, 2, 1), None)
    return {"gpt": whole, "mt5": mt5.programs[2], "bfloat16": in_bfloat16(whole), "slices": sliced.program}


def test_every_value_of_a_captured_step_is_on_the_gpu() -> None:
    """By torch's tensors without values, which say where each would be and refuse operands of two devices."""
    for name, program in _programs().items():
        numbers = range(len(program.inputs), len(program.inputs) + len(program.instructions))
        module = build_module(replace(program, results=tuple(numbers), gradients={}), GPU)
        with FakeTensorMode():
            given = [
                torch.empty_strided(value.shape, value.stride, dtype=getattr(torch, value.dtype), device=GPU)
                for value in program.inputs
            ]
            found = module(*given)
        for number, value in zip(numbers, found, strict=True):
            tensors = [each for each in (value if isinstance(value, (tuple, list)) else (value,)) if each is not None]
            assert {each.device for each in tensors} == {GPU}, (name, program.name_of(number))
            own = program.instructions[number - len(program.inputs)]
            for one, other in zip(tensors, own.results, strict=True):
                assert (tuple(one.shape), str(one.dtype)) == (other.shape, f"torch.{other.dtype}"), own.name
                assert tuple(one.stride()) == other.stride, own.name


@pytest.mark.parametrize("reads_sums", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_attention_keeps_the_queries_layout(dtype: torch.dtype, *, reads_sums: bool) -> None:
    """Heads of one product, which lie apart in memory: what comes next views the result."""
    with FakeTensorMode():
        heads = torch.empty(2, 6, 3, 2, 8, dtype=dtype, device=GPU).permute(2, 0, 3, 1, 4)
        functions = gpu_functions(Program(inputs=(), instructions=()))
        function = attention if reads_sums else functions[FORWARD]
        out = function(*heads, 0.0, True)[0]
        assert out.transpose(1, 2).view(2, 6, 16).shape == (2, 6, 16)


@pytest.mark.parametrize("masked", ["", "causal", "masked"])
@pytest.mark.parametrize("keys", [6, 9])
def test_written_attention_is_the_operators(masked: str, keys: int) -> None:
    """What GPUs compute in float64, on a CPU."""
    generator = torch.Generator().manual_seed(0)

    def random(tokens: int) -> Tensor:
        return torch.randn(2, 3, tokens, 5, generator=generator, dtype=torch.float64)

    query, key, value, gradient = random(6), random(keys), random(keys), random(6)
    hidden = torch.ones(6, keys, dtype=torch.bool).triu(1 + keys - 6)
    mask = torch.zeros(6, keys, dtype=torch.float64).masked_fill(hidden, float("-inf")) if masked == "masked" else None
    causal = masked == "causal"
    named = [getattr(torch.ops.aten, name.split(".")[1]).default for name in (FORWARD, BACKWARD)]
    out, sums = named[0](query, key, value, 0.0, causal, attn_mask=mask)
    wanted = named[1](gradient, query, key, value, out, sums, 0.0, causal, attn_mask=mask)
    found = attention(query, key, value, 0.0, causal, attn_mask=mask)
    gradients = attention_backward(gradient, query, key, value, *found, 0.0, causal, attn_mask=mask)
    for one, other in zip((*found, *gradients), (out, sums, *wanted), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
        assert one.stride() == other.stride()


def test_keys_that_heads_share_get_the_sum_of_their_gradients() -> None:
    generator = torch.Generator().manual_seed(0)
    query, gradient = (torch.randn(1, 4, 5, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    key, value = (torch.randn(1, 2, 5, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    found = attention(query, key, value, 0.0, True)
    changes = attention_backward(gradient, query, key, value, *found, 0.0, True)
    leaves = [each.clone().requires_grad_() for each in (query, key, value)]
    out = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(found[0], out.detach())
    torch.testing.assert_close(changes, torch.autograd.grad(out, leaves, gradient))


def test_what_goes_through_the_hosts_memory_arrives() -> None:
    """Two ranks; the tensors are a CPU's, and take the way of those of a GPU."""
    store = dist.HashStore()

    def rank(own: int) -> list[list[float]]:
        group = HostStaged(communicator(store, own, 2, device=CPU, timeout=LIMIT))
        sent, received = torch.full((2,), own + 1.0), torch.zeros(2)
        summed, given, exchanged = torch.full((2,), own + 1.0), torch.tensor([own, own + 10.0]), torch.zeros(2)
        began = [
            group.send([sent], 1 - own, 0),
            group.recv([received], 1 - own, 0),
            group.allreduce([summed]),
            group.alltoall_base(exchanged, given, [], []),
        ]
        sent.zero_()  # it was copied
        for work in began:
            assert work.wait(LIMIT)
        group.shutdown()
        return [received.tolist(), summed.tolist(), exchanged.tolist()]

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(rank, range(2))
    assert first == [[2.0, 2.0], [3.0, 3.0], [0.0, 1.0]]
    assert second == [[1.0, 1.0], [3.0, 3.0], [10.0, 11.0]]


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch has GPUs")
def test_a_machine_without_a_gpu_is_told() -> None:
    assert rank_device("cpu", 1) == CPU
    with pytest.raises(FailedPreconditionError, match="Ranks are to compute on GPUs, and torch"):
        rank_device("cuda", 0)
