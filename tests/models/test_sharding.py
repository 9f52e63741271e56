"""Networks in parts: N ranks as threads of this process, against `transformers` and against the whole network."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from headway.checkpoint.model_directory import Checkpoint, read_checkpoint
from headway.core.errors import InvalidArgumentError
from headway.core.model import ModelSpec
from headway.core.parallel_config import ParallelConfig
from headway.core.shard import check_parallel, shard_weight_bytes
from headway.models.layout import Layout, alone
from headway.models.model import Model
from headway.models.registry import build_model
from tests.checkpoints import make_checkpoint
from tests.models.oracle import TOLERANCE, random_prompts, reference_logprobs
from tests.models.ranks import ThreadAxis, compute_logits, layouts, read_progress, run_ranks

META = torch.device("meta")
LENGTHS = (4, 9, 17, 40)
FIVE_HEADS = {"num_attention_heads": 5, "hidden_size": 80}
SIX_HEADS = {"num_attention_heads": 6, "hidden_size": 96}
SHARED = {"decoder_sparse_step": 2, "shared_expert_intermediate_size": 50}

VARIANTS = {
    "llama": ("llama", {}, (2, 4)),
    "llama, all heads, tied": ("llama", {"num_key_value_heads": 4, "tie_word_embeddings": True}, (2, 3, 4)),
    "llama, one KV head": ("llama", {"num_key_value_heads": 1}, (2, 3, 4)),
    "llama, three KV heads": ("llama", {**SIX_HEADS, "num_key_value_heads": 3}, (2, 3)),
    "llama, three queries for a KV head": ("llama", {**SIX_HEADS, "num_key_value_heads": 2}, (2, 4)),
    "llama, five heads": ("llama", {**FIVE_HEADS, "num_key_value_heads": 5}, (2, 3, 4)),
    "llama, biases": ("llama", {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 4}, (2, 3)),
    "llama, odd sizes": ("llama", {"intermediate_size": 111, "vocab_size": 513, "num_key_value_heads": 4}, (2, 3, 4)),
    "mistral, window": ("mistral", {"sliding_window": 24}, (2,)),
    "qwen2": ("qwen2", {}, (2, 4)),
    "qwen3": ("qwen3", {}, (2, 4)),
    "smollm3": ("smollm3", {}, (2,)),
    "mixtral": ("mixtral", {"num_key_value_heads": 4}, (2, 3, 4)),
    "mixtral, one expert each": ("mixtral", {"num_experts_per_tok": 1}, (4,)),
    "qwen2-moe": ("qwen2_moe", {"num_key_value_heads": 4}, (2, 3, 4)),
    "qwen2-moe, every second layer sparse": ("qwen2_moe", {"num_hidden_layers": 4, **SHARED}, (2, 4)),
    "qwen3-moe, first layer dense": ("qwen3_moe", {"num_hidden_layers": 3, "mlp_only_layers": [0]}, (2, 4)),
    "opt": ("opt", {}, (2, 3, 4)),
    "opt, norms after, narrow embedding": ("opt", {"do_layer_norm_before": False, "word_embed_proj_dim": 32}, (2, 3)),
    "opt, no biases": ("opt", {"enable_bias": False}, (2,)),
    "opt, untied": ("opt", {"tie_word_embeddings": False}, (3,)),
    "gpt2": ("gpt2", {}, (2, 3, 4)),
    "gpt2, untied, narrow MLP": ("gpt2", {"tie_word_embeddings": False, "n_inner": 95}, (3,)),
}
CASES = [(variant, tp) for variant, (_, _, sizes) in VARIANTS.items() for tp in sizes]

MakeVariant = Callable[[str], Path]


@pytest.fixture(scope="module")
def make_variant(tmp_path_factory: pytest.TempPathFactory) -> MakeVariant:
    """A variant's checkpoint, written when it is first asked for."""
    made: dict[str, Path] = {}

    def make(variant: str) -> Path:
        if variant not in made:
            family, overrides, _ = VARIANTS[variant]
            made[variant] = make_checkpoint(tmp_path_factory.mktemp(family), family, **overrides)
        return made[variant]

    return make


def run_split(checkpoint: Checkpoint, prompts: list[list[int]], *, tp: int) -> list[torch.Tensor]:
    """Each prompt's log probabilities [T, vocab_size] of a group's first rank; the others have none."""
    check_parallel(checkpoint.spec, ParallelConfig(tp=tp), num_workers=tp)
    ranks = layouts(checkpoint.spec, tp=tp)
    leader, *others = run_ranks(ranks, lambda layout: compute_logits(checkpoint, prompts, layout=layout))
    assert leader is not None
    assert others == [None] * (tp - 1)
    return [logits.log_softmax(dim=1) for logits in leader]


def run_whole(checkpoint: Checkpoint, prompts: list[list[int]]) -> list[torch.Tensor]:
    with torch.inference_mode():
        logits = compute_logits(checkpoint, prompts, layout=alone(checkpoint.spec))
    assert logits is not None
    return [rows.log_softmax(dim=1) for rows in logits]


def mean_error(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """Of the log probabilities of the tokens that are best."""
    best = torch.cat(expected).argmax(dim=1, keepdim=True)
    return float((torch.cat(found) - torch.cat(expected)).gather(1, best).abs().mean())


@pytest.mark.parametrize(("variant", "tp"), CASES, ids=str)
def test_logits_equal_transformers_and_the_whole_network(make_variant: MakeVariant, variant: str, tp: int) -> None:
    directory = make_variant(variant)
    checkpoint = read_checkpoint(directory)
    reference = AutoModelForCausalLM.from_pretrained(directory).eval()
    prompts = random_prompts(checkpoint.spec.vocab_size, LENGTHS)
    found = run_split(checkpoint, prompts, tp=tp)
    for prompt, split, whole in zip(prompts, found, run_whole(checkpoint, prompts), strict=True):
        expected = reference_logprobs(reference, prompt)
        torch.testing.assert_close(split, expected, atol=TOLERANCE, rtol=0)
        torch.testing.assert_close(split, whole, atol=TOLERANCE, rtol=0)
        assert split.argmax(dim=1).tolist() == expected.argmax(dim=1).tolist()


@pytest.mark.parametrize("variant", ["llama", "gpt2", "qwen2-moe"])
def test_a_checkpoint_in_several_files_gives_the_same(tmp_path: Path, make_variant: MakeVariant, variant: str) -> None:
    family, overrides, _ = VARIANTS[variant]
    directory = make_checkpoint(tmp_path, family, max_shard_size="100KB", **overrides)
    assert len(list(directory.glob("*.safetensors"))) > 2
    prompts = random_prompts(512, LENGTHS)
    in_one = run_split(read_checkpoint(make_variant(variant)), prompts, tp=2)
    for several, one in zip(run_split(read_checkpoint(directory), prompts, tp=2), in_one, strict=True):
        torch.testing.assert_close(several, one, atol=0, rtol=0)


@pytest.mark.parametrize("variant", ["llama", "mixtral", "opt, norms after, narrow embedding"])
@pytest.mark.parametrize("options", [{"quantization": "int8"}, {"dtype": "bfloat16"}], ids=str)
def test_rounded_weights_stay_close(make_variant: MakeVariant, variant: str, options: dict[str, str]) -> None:
    """A part is rounded by itself: a row that is split has a scale in each part."""
    directory = make_variant(variant)
    prompts = random_prompts(512, (60, 70))
    exact = run_whole(read_checkpoint(directory), prompts)
    rounded = read_checkpoint(directory, **options)
    error_of_whole = mean_error(run_whole(rounded, prompts), exact)
    assert mean_error(run_split(rounded, prompts, tp=2), exact) < max(0.02, 1.5 * error_of_whole)


def build_ranks(spec: ModelSpec, *, tp: int, pp: int = 1) -> list[tuple[Layout, Model]]:
    return [(layout, build_model(spec, layout=layout, device=META)) for layout in layouts(spec, tp=tp, pp=pp)]


def allowed_sizes(spec: ModelSpec) -> list[int]:
    """Of groups of up to 8 ranks."""
    sizes = []
    for tp in range(1, 9):
        try:
            check_parallel(spec, ParallelConfig(tp=tp), num_workers=8)
        except InvalidArgumentError:
            continue
        sizes.append(tp)
    return sizes


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_element_is_on_one_rank_or_on_those_that_share_it(make_variant: MakeVariant, variant: str) -> None:
    spec = read_checkpoint(make_variant(variant)).spec
    shapes = {name: parts[0].shape for name, parts in build_ranks(spec, tp=1)[0][1].tensors().items()}
    for tp in allowed_sizes(spec):
        num_holders = {name: torch.zeros(shape, dtype=torch.int32) for name, shape in shapes.items()}
        for _, model in build_ranks(spec, tp=tp):
            for name, parts in model.tensors().items():
                for part in parts:
                    assert part.shape == shapes[name]
                    assert num_holders[name][part.index].shape == part.view.shape
                    num_holders[name][part.index] += 1
        num_sharing_keys = max(1, tp // spec.num_kv_heads)
        for name, counts in num_holders.items():
            assert set(counts.unique().tolist()) <= {1, num_sharing_keys, tp}, f"{name}, tp {tp}"
            if "_proj.weight" in name and "k_proj" not in name and "v_proj" not in name:
                assert counts.unique().tolist() == [1], f"{name}, tp {tp}"


# Norms and biases are not counted, nor the matrices between a narrow embedding and the layers.
EMBEDDINGS = ("embed_tokens.weight", "wte.weight")
UNCOUNTED = ("project_in.weight", "project_out.weight")
NOT_QUANTISED = ("embed_tokens.weight", "embed_positions.weight", "wte.weight", "wpe.weight", "gate.weight")
NUM_PADDING_POSITIONS = {"opt": 2}


def counted_weight_bytes(spec: ModelSpec, layout: Layout, model: Model) -> int:
    """Of the parameters that a rank allocates; a tied head is packed apart from the embedding whose rows it shares."""
    shard = layout.shard
    matrix_bytes = 1 if spec.quantization else spec.dtype_bytes
    num_bytes = 0
    for name, parts in model.tensors().items():
        element_bytes = spec.dtype_bytes if name.endswith(NOT_QUANTISED) and "gate_proj" not in name else matrix_bytes
        if name.endswith("shared_expert_gate.weight"):
            element_bytes = spec.dtype_bytes
        sizes = [part.view.numel() * element_bytes for part in parts if part.view.dim() == 2]
        if name in EMBEDDINGS:
            num_tables = int(shard.is_first)  # what else the embedding fills is the head that is tied to it
            assert len(parts) - num_tables <= spec.tied_embeddings
            sizes = [
                part.view.numel() * (spec.dtype_bytes if index < num_tables else matrix_bytes)
                for index, part in enumerate(parts)
            ]
        num_bytes += 0 if name in UNCOUNTED else sum(sizes)
    if shard.is_first:
        num_bytes -= NUM_PADDING_POSITIONS.get(spec.family, 0) * spec.hidden_size * spec.dtype_bytes
    is_sharing = shard.head.start >= shard.vocab.start and shard.head.stop <= shard.vocab.stop
    if spec.tied_embeddings and shard.is_first and is_sharing:
        num_bytes += len(shard.head) * (spec.embedding_dim or spec.hidden_size) * matrix_bytes
    return num_bytes


@pytest.mark.parametrize("quantization", [None, "int8"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_rank_allocates_the_bytes_that_are_planned(
    make_variant: MakeVariant, variant: str, quantization: str | None
) -> None:
    spec = replace(read_checkpoint(make_variant(variant)).spec, quantization=quantization)
    for tp, pp in product(allowed_sizes(spec), range(1, spec.num_layers + 1)):
        for layout, model in build_ranks(spec, tp=tp, pp=pp):
            planned = shard_weight_bytes(spec, layout.shard)
            assert counted_weight_bytes(spec, layout, model) == planned, f"rank {layout.tensor.rank} of {tp} x {pp}"
            assert tp * pp > 1 or planned == spec.weight_bytes


@pytest.mark.parametrize("variant", ["llama", "mixtral", "gpt2"])
def test_a_rank_reads_its_own_part_and_tells_its_size(make_variant: MakeVariant, variant: str) -> None:
    checkpoint = read_checkpoint(make_variant(variant))
    for tp in (1, 2):
        for layout, model in build_ranks(checkpoint.spec, tp=tp):
            held = sum(part.view.nbytes for parts in model.tensors().values() for part in parts)
            num_read, total = read_progress(checkpoint, layout=layout)
            assert num_read == pytest.approx(held, rel=0.001)
            assert total == pytest.approx(held, rel=0.05)
            assert held < checkpoint.weight_bytes * (0.6 if tp == 2 else 1.001)


@pytest.mark.parametrize("variant", ["llama", "mixtral", "gpt2"])
def test_ranks_add_up_twice_a_layer_and_collect_logits_or_best_tokens_once(
    make_variant: MakeVariant, variant: str
) -> None:
    checkpoint = read_checkpoint(make_variant(variant))
    spec, num_tokens = checkpoint.spec, 33
    ranks = layouts(spec, tp=2)
    prompts = random_prompts(spec.vocab_size, (num_tokens,))
    run_ranks(ranks, lambda layout: compute_logits(checkpoint, prompts, layout=layout, num_steps=0))
    hidden = (num_tokens, spec.hidden_size)
    layer = [("all_reduce", "attention", hidden), ("all_reduce", "mlp", hidden)]
    heads = [("gather", "logits", (num_tokens, spec.vocab_size // 2)), ("gather", "best", (num_tokens, 2))]
    for layout in ranks:
        assert isinstance(layout.tensor, ThreadAxis)
        assert layout.tensor.calls == [("all_reduce", "embedding", hidden), *layer * spec.num_layers, *heads]


def test_tensors_of_other_ranks_are_known_and_those_of_no_rank_refused(tmp_path: Path) -> None:
    directory = make_checkpoint(tmp_path, "mixtral", num_local_experts=2)
    checkpoint = read_checkpoint(directory)
    second = layouts(checkpoint.spec, tp=2)[1]
    assert not any("experts.0" in name for name in build_model(checkpoint.spec, layout=second, device=META).tensors())
    read_progress(checkpoint, layout=second)
    path = directory / "model.safetensors"
    name = "model.layers.0.block_sparse_moe.experts.2.w1.weight"
    save_file({**load_file(path), name: torch.ones(2)}, path)
    with pytest.raises(InvalidArgumentError, match=r"experts\.2"):
        read_progress(checkpoint, layout=second)


def test_a_tensor_that_a_rank_lacks_is_named(tmp_path: Path) -> None:
    directory = make_checkpoint(tmp_path, "llama")
    path = directory / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.layers.1.self_attn.o_proj.weight"]
    save_file(tensors, path)
    checkpoint = read_checkpoint(directory)
    with pytest.raises(InvalidArgumentError, match=r"layers\.1\.self_attn\.o_proj"):
        read_progress(checkpoint, layout=layouts(checkpoint.spec, tp=2)[1])
