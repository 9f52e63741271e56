"""The shape of a model, read from a Hugging Face `config.json`: pure, no torch, no file access.

One `ModelSpec` describes every family that Headway runs; families differ by its fields, not by code that asks for
names. The planner sizes memory from it, the worker builds the network from it.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from enum import StrEnum

from headway.core.encoder import EncoderSpec

DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
QUANTIZATION_BYTES = {"int8": 1}


class ModelFamily(StrEnum):
    """Network layouts, one module of `headway.models` each; of the last one another engine has the network."""

    LLAMA = "llama"
    OPT = "opt"
    GPT2 = "gpt2"
    BERT = "bert"
    ROBERTA = "roberta"
    DISTILBERT = "distilbert"
    OTHER = "other"


GATED = frozenset({ModelFamily.LLAMA, ModelFamily.OTHER})
"""Families whose MLP has three matrices; the others' have two."""


class Task(StrEnum):
    """The task that a model does."""

    GENERATE = "generate"
    EMBED = "embed"
    CLASSIFY = "classify"


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeSpec:
    """A rotary embedding. `kind` is 'default', 'linear', 'dynamic', 'llama3' or 'yarn'; the other fields belong to the
    kind.

    Attributes:
        theta: the base of the frequencies.
        rotary_dim: the number of leading dimensions of a head that rotate.
        original_max_position: the context length that the scaling starts from.
        attention_factor: the scale of cos and sin (yarn).
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
class ExpertsSpec:
    """A mixture of experts in place of some layers' MLP: a router sends each token to a few of many small MLPs.

    Attributes:
        num_experts_per_tok: experts that a token is sent to.
        intermediate_size: of one expert.
        shared_intermediate_size: of the expert that every token goes through besides; 0 for none.
        is_normalized: whether the weights of a token's experts are scaled to sum to 1.
        sparse_layers: which layers have experts; empty for all. The others have a dense MLP.
    """

    num_experts: int
    num_experts_per_tok: int
    intermediate_size: int
    shared_intermediate_size: int = 0
    is_normalized: bool = True
    sparse_layers: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Dimensions and options of a transformer: a decoder that generates, or an encoder.

    Attributes:
        architecture: the checkpoint's own class name, e.g. 'Qwen2ForCausalLM'.
        max_position: longest sequence the model was built for, in tokens.
        intermediate_size: of a dense MLP.
        dtype: of the weights and the KV cache.
        quantization: what the matrices are rounded to when they are loaded ('int8'), or None to keep them in `dtype`,
            as embeddings, positions and routers always are.
        experts: of a sparse model, or None.
        activation: 'silu', 'relu', 'gelu' or 'gelu_tanh'; empty where another engine has the network.
        rope_layers: which layers rotate queries and keys; empty for all.
        pre_norm: whether a block normalises its input (True) or its output (OPT-350m).
        sliding_window: attention span in tokens, the query's own included, or None for full attention.
        sliding_layers: which layers have the window; empty for all.
        eos_token_ids: end the sequence.
        embedding_dim: width of the token embedding (OPT-350m's differs from hidden_size).
        latent_dim: numbers that a layer keeps of a token in place of keys and values (DeepSeek's multi-head latent
            attention); 0 where it keeps those.
        stored_bytes: of the weights as another engine takes them from the checkpoint, in whatever types; 0 where the
            dimensions say it.
        encoder: of a model that does not generate: it turns a sequence into a vector in one pass and keeps no keys and
            values. None for a decoder.
    """

    family: ModelFamily
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
    quantization: str | None = None
    experts: ExpertsSpec | None = None
    latent_dim: int = 0
    stored_bytes: int = 0
    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None
    encoder: EncoderSpec | None = None

    @property
    def task(self) -> Task:
        if self.encoder is None:
            return Task.GENERATE
        return Task.CLASSIFY if self.encoder.labels else Task.EMBED

    @property
    def dtype_bytes(self) -> int:
        return DTYPE_BYTES[self.dtype]

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values that one token keeps over all layers; an encoder keeps none."""
        if self.encoder is not None:
            return 0
        return self.num_layers * self.kv_width(self.num_kv_heads) * self.dtype_bytes

    def kv_width(self, num_kv_heads: int) -> int:
        """Numbers that a layer keeps of one token, with so many of its heads."""
        return self.latent_dim or 2 * num_kv_heads * self.head_dim

    @property
    def num_parameters(self) -> int:
        """Parameters of matrices and embeddings; norms and biases are left out (well under 0.1 %)."""
        head = 0 if self.tied_embeddings else self.num_head_weights
        layers = self._num_layer_weights(is_active=False) + self._num_router_weights
        return layers + self._num_embedding_weights + self._num_position_weights + head

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights as the worker holds them (a tied head is packed apart from the embedding).

        The scales of quantised weights are left out: 4 bytes for a row of a matrix.
        """
        if self.stored_bytes:
            return self.stored_bytes
        matrix_bytes = QUANTIZATION_BYTES[self.quantization] if self.quantization else self.dtype_bytes
        matrices = self._num_layer_weights(is_active=False) + self.num_head_weights
        unquantized = self._num_embedding_weights + self._num_position_weights + self._num_router_weights
        return matrices * matrix_bytes + unquantized * self.dtype_bytes

    @property
    def flops_per_token(self) -> int:
        """Multiply-adds times two of the matrix products for one token, attention scores excluded."""
        layers = self._num_layer_weights(is_active=True) + self._num_router_weights
        return 2 * (layers + (0 if self.encoder else self.num_head_weights))

    @property
    def _num_embedding_weights(self) -> int:
        return self.vocab_size * (self.embedding_dim or self.hidden_size)

    @property
    def num_head_weights(self) -> int:
        """The number of weights that give logits: as many as the token embedding has; in an encoder two small matrices
        at most.
        """
        if self.encoder is None:
            return self._num_embedding_weights
        return self.hidden_size * (self.hidden_size + len(self.encoder.labels)) if self.encoder.labels else 0

    @property
    def _num_position_weights(self) -> int:
        return 0 if self.rope else self.num_position_rows * self.hidden_size

    @property
    def num_position_rows(self) -> int:
        """The rows of the tables of positions and token types, where they are learnt."""
        if self.encoder is not None:
            return self.encoder.num_positions + self.encoder.num_token_types
        return self.max_position

    @property
    def _num_router_weights(self) -> int:
        """The number of weights of the routers, and of the gates of shared experts."""
        if self.experts is None:
            return 0
        num_outputs = self.experts.num_experts + (self.experts.shared_intermediate_size > 0)
        return self._num_sparse_layers * num_outputs * self.hidden_size

    @property
    def _num_sparse_layers(self) -> int:
        return sum(self.is_sparse(layer) for layer in range(self.num_layers))

    def _num_layer_weights(self, *, is_active: bool) -> int:
        """Returns the number of weights in the layers' matrices, without routers; `is_active` counts only those that
        one token passes.
        """
        attention = self.hidden_size * self.head_dim * (2 * self.num_heads + 2 * self.num_kv_heads)
        widths = (self.num_layers - self._num_sparse_layers) * self.intermediate_size
        if (experts := self.experts) is not None:
            num_experts = experts.num_experts_per_tok if is_active else experts.num_experts
            width = num_experts * experts.intermediate_size + experts.shared_intermediate_size
            widths += self._num_sparse_layers * width
        num_mlp_matrices = 3 if self.family in GATED else 2
        return self.num_layers * attention + num_mlp_matrices * self.hidden_size * widths

    def is_sparse(self, layer: int) -> bool:
        """Whether one layer has a mixture of experts in place of a dense MLP."""
        experts = self.experts
        return experts is not None and (not experts.sparse_layers or experts.sparse_layers[layer])

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
