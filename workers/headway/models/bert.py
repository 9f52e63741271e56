"""BERT and the families that differ from it by names and tables: RoBERTa, XLM-R, DistilBERT."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from headway.core.encoder import Pooling
from headway.core.model import Family, ModelSpec
from headway.models.block import LayerNorm
from headway.models.encoder import EncoderBatch, SequenceRun
from headway.models.encoder_head import make_head, pool
from headway.models.linear import Linear
from headway.models.model import DTYPES
from headway.models.weights import NamedPart, Part, Piece, Tensors, by_name, under


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """What a checkpoint calls the parts of a layer."""

    layer: str
    query: str
    key: str
    value: str
    output: str
    attention_norm: str
    up: str
    down: str
    mlp_norm: str


_BERT_NAMES = _Names(
    layer="encoder.layer",
    query="attention.self.query",
    key="attention.self.key",
    value="attention.self.value",
    output="attention.output.dense",
    attention_norm="attention.output.LayerNorm",
    up="intermediate.dense",
    down="output.dense",
    mlp_norm="output.LayerNorm",
)
_DISTILBERT_NAMES = _Names(
    layer="transformer.layer",
    query="attention.q_lin",
    key="attention.k_lin",
    value="attention.v_lin",
    output="attention.out_lin",
    attention_norm="sa_layer_norm",
    up="ffn.lin1",
    down="ffn.lin2",
    mlp_norm="output_layer_norm",
)


class BertLayer:
    """Attention over whole sequences and an MLP, each added to its input and normalised then."""

    def __init__(self, spec: ModelSpec, *, dtype: torch.dtype, device: torch.device) -> None:
        hidden_size, inner_size = spec.hidden_size, spec.intermediate_size
        self.qkv = Linear(hidden_size, 3 * hidden_size, bias=True, dtype=dtype, device=device)
        self.output = Linear(hidden_size, hidden_size, bias=True, dtype=dtype, device=device)
        self.attention_norm = LayerNorm(spec, dtype=dtype, device=device)
        self.up = Linear(hidden_size, inner_size, bias=True, dtype=dtype, device=device, activation=spec.activation)
        self.down = Linear(inner_size, hidden_size, bias=True, dtype=dtype, device=device)
        self.mlp_norm = LayerNorm(spec, dtype=dtype, device=device)
        self._heads = (3, spec.num_heads, spec.head_dim)

    def __call__(self, hidden: Tensor, runs: tuple[SequenceRun, ...], *, rows: Tensor | None) -> Tensor:
        """hidden [T, hidden] -> the same, or its `rows` only."""
        attended = self._attend(self.qkv(hidden), runs, like=hidden)
        if rows is not None:
            attended, hidden = attended[rows], hidden[rows]
        hidden = self.attention_norm(self.output(attended, residual=hidden))
        return self.mlp_norm(self.down(self.up(hidden), residual=hidden))

    def _attend(self, qkv: Tensor, runs: tuple[SequenceRun, ...], *, like: Tensor) -> Tensor:
        """One call for all sequences of a length: a batch without padding."""
        attended = torch.empty_like(like)
        for run in runs:
            part = slice(run.first_token, run.end_token)
            q, k, v = qkv[part].view(run.num_sequences, run.length, *self._heads).permute(2, 0, 3, 1, 4)
            out = functional.scaled_dot_product_attention(q, k, v)
            attended[part].view(run.num_sequences, run.length, *self._heads[1:]).copy_(out.transpose(1, 2))
        return attended

    def named(self, names: _Names) -> Iterator[NamedPart]:
        third = Piece.whole(len(self.qkv.weight) // 3)
        yield from self.qkv.named_parts((names.query, third), (names.key, third), (names.value, third))
        yield from self.output.named(names.output)
        yield from self.attention_norm.named(names.attention_norm)
        yield from self.up.named(names.up)
        yield from self.down.named(names.down)
        yield from self.mlp_norm.named(names.mlp_norm)

    def linears(self) -> list[Linear]:
        return [self.qkv, self.output, self.up, self.down]


class Bert:
    """See `headway.models.encoder.Encoder`."""

    def __init__(self, spec: ModelSpec, *, device: torch.device) -> None:
        encoder = spec.encoder
        assert encoder is not None, "a decoder's spec"
        dtype, width = DTYPES[spec.dtype], spec.hidden_size
        self._names = _DISTILBERT_NAMES if spec.family is Family.DISTILBERT else _BERT_NAMES
        self._words = torch.empty(spec.vocab_size, width, dtype=dtype, device=device)
        self._positions = torch.empty(encoder.num_positions, width, dtype=dtype, device=device)
        self._position_offset = encoder.position_offset
        self._types: Tensor | None = None
        if encoder.num_token_types:
            self._types = torch.empty(encoder.num_token_types, width, dtype=dtype, device=device)
        self._norm = LayerNorm(spec, dtype=dtype, device=device)
        self._layers = [BertLayer(spec, dtype=dtype, device=device) for _ in range(spec.num_layers)]
        self._pooling = encoder.pooling
        self._head = make_head(spec, encoder, dtype=dtype, device=device)

    def forward(self, batch: EncoderBatch) -> Tensor:
        hidden = self._embed(batch)
        for layer in self._layers:
            is_first_enough = layer is self._layers[-1] and self._pooling is Pooling.CLS
            hidden = layer(hidden, batch.runs, rows=batch.first_rows if is_first_enough else None)
        return self._head(pool(hidden, self._pooling, lengths=batch.lengths))

    def _embed(self, batch: EncoderBatch) -> Tensor:
        hidden = functional.embedding(batch.token_ids, self._words)
        if self._types is not None:
            hidden += functional.embedding(batch.token_type_ids, self._types)
        hidden += functional.embedding(batch.positions, self._positions[self._position_offset :])
        return self._norm(hidden)

    def tensors(self) -> Tensors:
        return by_name(self._named())

    def _named(self) -> Iterator[NamedPart]:
        yield "embeddings.word_embeddings.weight", Part.whole(self._words)
        yield "embeddings.position_embeddings.weight", Part.whole(self._positions)
        if self._types is not None:
            yield "embeddings.token_type_embeddings.weight", Part.whole(self._types)
        yield from self._norm.named("embeddings.LayerNorm")
        for index, layer in enumerate(self._layers):
            yield from under(f"{self._names.layer}.{index}", layer.named(self._names))
        yield from self._head.named()

    def linears(self) -> list[Linear]:
        return [*(linear for layer in self._layers for linear in layer.linears()), *self._head.linears()]
