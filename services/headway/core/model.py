"""The shape of a model, read from a Hugging Face `config.json`: pure, no torch, no file access.

One `ModelSpec` describes every decoder family that Headway runs; families differ by its fields, not by code that
asks for names. The planner sizes memory from it, the worker builds the network from it.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from enum import StrEnum

DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


class Family(StrEnum):
    """Network layouts, one module of `headway.models` each."""

    LLAMA = "llama"
    OPT = "opt"
    GPT2 = "gpt2"


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeSpec:
    """Rotary embedding. `kind` is 'default', 'linear', 'dynamic', 'llama3' or 'yarn'; the rest belongs to the kind.

    Attributes:
        theta: base of the frequencies.
        rotary_dim: leading dimensions of a head that rotate.
        original_max_position: context length that the scaling starts from.
        attention_factor: scale of cos and sin (yarn).
        truncate: whether yarn rounds its correction range to whole dimensions.
    """

    theta: float
    rotary_dim: int
    kind: str = "default"
    factor: float = 1.0
    original_max_position: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    truncate: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Dimensions and options of a decoder-only transformer.

    Attributes:
        architecture: the checkpoint's own class name, e.g. 'Qwen2ForCausalLM'.
        max_position: longest sequence the model was built for, in tokens.
        dtype: of the weights and the KV cache.
        activation: 'silu', 'relu', 'gelu' or 'gelu_tanh'.
        rope_layers: which layers rotate queries and keys; empty for all.
        pre_norm: whether a block normalises its input (True) or its output (OPT-350m).
        sliding_window: attention span in tokens, the query's own included, or None for full attention.
        sliding_layers: which layers have the window; empty for all.
        eos_token_ids: end the sequence.
        embedding_dim: width of the token embedding (OPT-350m's differs from hidden_size).
    """

    family: Family
    architecture: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    max_position: int
    dtype: str
    activation: str
    norm_eps: float
    rope: RopeSpec | None = None
    rope_layers: tuple[bool, ...] = ()
    tied_embeddings: bool = False
    attention_bias: bool = False
    attention_output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    pre_norm: bool = True
    final_norm: bool = True
    embedding_dim: int = 0
    sliding_window: int | None = None
    sliding_layers: tuple[bool, ...] = ()
    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None

    @property
    def dtype_bytes(self) -> int:
        return DTYPE_BYTES[self.dtype]

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values that one token keeps over all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.dtype_bytes

    @property
    def num_parameters(self) -> int:
        """Parameters of matrices and embeddings; norms and biases are left out (well under 0.1 %)."""
        attention = self.hidden_size * self.head_dim * (2 * self.num_heads + 2 * self.num_kv_heads)
        num_mlp_matrices = 3 if self.family is Family.LLAMA else 2
        mlp = num_mlp_matrices * self.hidden_size * self.intermediate_size
        embedding = self.vocab_size * (self.embedding_dim or self.hidden_size)
        positions = 0 if self.rope else self.max_position * self.hidden_size
        head = 0 if self.tied_embeddings else embedding
        return self.num_layers * (attention + mlp) + embedding + positions + head

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights as the worker holds them (a tied head is packed apart from the embedding)."""
        embedding = self.vocab_size * (self.embedding_dim or self.hidden_size)
        tied_copy = embedding if self.tied_embeddings else 0
        return (self.num_parameters + tied_copy) * self.dtype_bytes

    @property
    def flops_per_token(self) -> int:
        """Multiply-adds times two of the matrix products for one token, attention scores excluded."""
        embedding = self.vocab_size * (self.embedding_dim or self.hidden_size)
        positions = 0 if self.rope else self.max_position * self.hidden_size
        untied = 0 if self.tied_embeddings else embedding
        return 2 * (self.num_parameters - positions - untied)

    def window(self, layer: int) -> int | None:
        """Attention span of one layer in tokens, or None for full attention."""
        return self.sliding_window if not self.sliding_layers or self.sliding_layers[layer] else None

    def rotates(self, layer: int) -> bool:
        """Whether one layer rotates its queries and keys."""
        return self.rope is not None and (not self.rope_layers or self.rope_layers[layer])

    @property
    def content_hash(self) -> str:
        """Stable over processes; changes when any dimension or option does."""
        text = json.dumps(asdict(self), sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]
