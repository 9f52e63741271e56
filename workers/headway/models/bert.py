"""BERT and the families that differ from it by names and tables: RoBERTa, XLM-R, DistilBERT."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypedDict

import torch
from torch import Tensor
from torch.nn import functional

from headway.core.encoder import EncoderSpec, Pooling
from headway.core.model import ModelFamily, ModelSpec
from headway.models.block import LayerNorm
from headway.models.embedding import VocabEmbedding
from headway.models.encoder import EncoderAttention, EncoderBatch, EncoderBody
from headway.models.encoder_attention import RunAttention
from headway.models.encoder_head import make_head, pool
from headway.models.layout import Layout
from headway.models.linear import Linear
from headway.models.model import DTYPES
from headway.models.row_linear import RowLinear
from headway.models.weights import NamedPart, Part, Piece, Tensors, by_name, under


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """A checkpoint's names for the parts of a layer."""

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


class _Kind(TypedDict):
    """The bias, dtype and device that all of a layer's products share."""

    bias: bool
    dtype: torch.dtype
    device: torch.device


class BertLayer:
    """Attention over whole sequences and an MLP, each added to its input and normalised then."""

    def __init__(self, spec: ModelSpec, *, layout: Layout, dtype: torch.dtype, device: torch.device) -> None:
        width, heads, axis = spec.hidden_size, layout.shard.query_heads, layout.tensor
        self._attended = Piece(heads, spec.num_heads).times(spec.head_dim)
        self._inner = Piece(layout.shard.mlp, spec.intermediate_size)
        num_attended, num_inner = len(self._attended), len(self._inner)
        kind: _Kind = {"bias": True, "dtype": dtype, "device": device}
        self.qkv = Linear(width, 3 * num_attended, **kind)
        self.output = RowLinear(num_attended, width, axis=axis, site="attention", **kind)
        self.attention_norm = LayerNorm(spec, dtype=dtype, device=device)
        self.up = Linear(width, num_inner, activation=spec.activation, **kind)
        self.down = RowLinear(num_inner, width, axis=axis, site="mlp", **kind)
        self.mlp_norm = LayerNorm(spec, dtype=dtype, device=device)
        self._heads = (len(heads), spec.head_dim)

    def __call__(self, hidden: Tensor, attend: EncoderAttention, *, rows: Tensor | None) -> Tensor:
        """hidden [T, hidden] -> the same, or its `rows` only."""
        attended = attend(self.qkv(hidden), self._heads)
        if rows is not None:
            attended, hidden = attended[rows], hidden[rows]
        hidden = self.attention_norm(self.output(attended, residual=hidden))
        return self.mlp_norm(self.down(self.up(hidden), residual=hidden))

    def named(self, names: _Names) -> Iterator[NamedPart]:
        heads = self._attended
        yield from self.qkv.named_parts((names.query, heads), (names.key, heads), (names.value, heads))
        yield from self.output.named(names.output, columns=heads)
        yield from self.attention_norm.named(names.attention_norm)
        yield from self.up.named(names.up, rows=self._inner)
        yield from self.down.named(names.down, columns=self._inner)
        yield from self.mlp_norm.named(names.mlp_norm)

    def linears(self) -> list[Linear]:
        return [self.qkv, self.output, self.up, self.down]


class BertEmbedding:
    """The embedding of words, positions and types, normalised."""

    def __init__(
        self, spec: ModelSpec, encoder: EncoderSpec, *, layout: Layout, dtype: torch.dtype, device: torch.device
    ) -> None:
        width = spec.hidden_size
        self._words = VocabEmbedding(spec, layout=layout, dtype=dtype, device=device)
        self._positions = torch.empty(encoder.num_positions, width, dtype=dtype, device=device)
        self._position_offset = encoder.position_offset
        self._types: Tensor | None = None
        if encoder.num_token_types:
            self._types = torch.empty(encoder.num_token_types, width, dtype=dtype, device=device)
        self._norm = LayerNorm(spec, dtype=dtype, device=device)

    def __call__(self, batch: EncoderBatch) -> Tensor:
        hidden = self._words(batch.token_ids)
        if self._types is not None:
            hidden += functional.embedding(batch.token_type_ids, self._types)
        hidden += functional.embedding(batch.positions, self._positions[self._position_offset :])
        return self._norm(hidden)

    def named(self) -> Iterator[NamedPart]:
        yield "word_embeddings.weight", self._words.part
        yield "position_embeddings.weight", Part.whole(self._positions)
        if self._types is not None:
            yield "token_type_embeddings.weight", Part.whole(self._types)
        yield from self._norm.named("LayerNorm")


class Bert:
    """The BERT encoder; see `headway.models.encoder.Encoder`."""

    def __init__(self, spec: ModelSpec, *, layout: Layout, device: torch.device) -> None:
        encoder, shard = spec.encoder, layout.shard
        assert encoder is not None, "a decoder's spec"
        dtype = DTYPES[spec.dtype]
        self._names = _DISTILBERT_NAMES if spec.family is ModelFamily.DISTILBERT else _BERT_NAMES
        self._embedding: BertEmbedding | None = None
        if shard.is_first:
            self._embedding = BertEmbedding(spec, encoder, layout=layout, dtype=dtype, device=device)
        self._layers = {layer: BertLayer(spec, layout=layout, dtype=dtype, device=device) for layer in shard.layers}
        self._pooling = encoder.pooling
        self._head = make_head(spec, encoder, dtype=dtype, device=device) if shard.is_last else None
        self._body: EncoderBody | None = None

    @property
    def gives_first_rows(self) -> bool:
        return self._head is not None and self._pooling is Pooling.CLS

    def forward(self, batch: EncoderBatch, *, entering: Tensor | None = None) -> Tensor:
        run = self.run_layers if self._body is None else self._body
        hidden = run(self.embed(batch) if entering is None else entering, batch)
        return hidden if self._head is None else self._head(pool(hidden, self._pooling, lengths=batch.lengths))

    def layers(self, hidden: Tensor, attend: EncoderAttention, *, rows: Tensor | None) -> Tensor:
        last = max(self._layers)
        for number, layer in self._layers.items():
            hidden = layer(hidden, attend, rows=rows if number == last else None)
        return hidden

    def run_on(self, body: EncoderBody) -> None:
        self._body = body
        self._layers = {}

    def run_layers(self, hidden: Tensor, batch: EncoderBatch) -> Tensor:
        rows = batch.first_rows if self.gives_first_rows else None
        return self.layers(hidden, RunAttention(batch.runs), rows=rows)

    def embed(self, batch: EncoderBatch) -> Tensor:
        assert self._embedding is not None, "the first stage embeds"
        return self._embedding(batch)

    def tensors(self) -> Tensors:
        return by_name(self._named())

    def _named(self) -> Iterator[NamedPart]:
        if self._embedding is not None:
            yield from under("embeddings", self._embedding.named())
        for index, layer in self._layers.items():
            yield from under(f"{self._names.layer}.{index}", layer.named(self._names))
        if self._head is not None:
            yield from self._head.named()

    def linears(self) -> list[Linear]:
        of_layers = (linear for layer in self._layers.values() for linear in layer.linears())
        return [*of_layers, *(self._head.linears() if self._head is not None else ())]
