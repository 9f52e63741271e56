"""Names of a Llama's tensors in a Hugging Face checkpoint, by those of the network that is captured from its config,
and whether that network computes the same. Pure."""

from headway.core.errors import FailedPreconditionError
from headway.core.model import ModelFamily, ModelSpec

_QK_NORM_EPS = 1e-6
_MODULES = {
    "tokens": "model.embed_tokens",
    "head": "lm_head",
    "norm": "model.norm",
    "layers": "model.layers",
    "attention_norm": "input_layernorm",
    "feed_forward_norm": "post_attention_layernorm",
    "attention": "self_attn",
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "output": "o_proj",
    "query_norm": "q_norm",
    "key_norm": "k_norm",
    "feed_forward": "mlp",
    "gate": "gate_proj",
    "up": "up_proj",
    "down": "down_proj",
}


def checkpoint_name(path: str) -> str:
    """The checkpoint's name of a parameter of the network, such as `model.layers.0.self_attn.q_proj.weight`."""
    return ".".join(_MODULES.get(module, module) for module in path.split("."))


def check_trainable(spec: ModelSpec, *, seq: int | None) -> None:
    """Raises:
    FailedPreconditionError: the network computes something else than the checkpoint's own model, or names differ.
    """
    rope, longest = spec.rope, seq or spec.max_position
    reasons = {
        f"its family is {spec.family}": spec.family is not ModelFamily.LLAMA,
        "it is a mixture of experts": spec.experts is not None,
        "its rotations are scaled": rope is None or rope.kind != "default",
        "only a part of each head rotates": rope is not None and rope.rotary_dim != spec.head_dim,
        f"its attention sees {spec.sliding_window} tokens only": (spec.sliding_window or longest) < longest,
        "its norms of queries and keys have another epsilon": spec.qk_norm and spec.norm_eps != _QK_NORM_EPS,
        f"it is quantized ({spec.quantization})": spec.quantization is not None,
    }
    if found := [reason for reason, holds in reasons.items() if holds]:
        raise FailedPreconditionError(
            f"{spec.architecture} is not trained from its checkpoint: {found[0]}.",
            hint="Name a plain Llama, Mistral or Qwen, or a module:factory that loads weights of its own.",
            field="model",
        )
