"""BERT: a bidirectional transformer encoder with a pooler on its first token."""

from dataclasses import dataclass, replace
from typing import Self

from headway.profiler.zoo.model import InputSpec, ZooModel


@dataclass(frozen=True, slots=True)
class BertConfig:
    """Sizes of a BERT; implements `headway.profiler.zoo.model.Architecture`."""

    hidden: int
    num_layers: int
    num_heads: int
    vocabulary: int
    seq: int
    num_token_types: int = 2

    def small(self) -> Self:
        return replace(self, hidden=32, num_layers=2, num_heads=4, vocabulary=64, seq=16)

    def inputs(self, *, batch: int, seq: int) -> tuple[InputSpec, ...]:
        """Makes token ids, and which of two sentences each token belongs to."""
        return (InputSpec((batch, seq), self.vocabulary), InputSpec((batch, seq), self.num_token_types))

    def targets(self, *, batch: int, seq: int) -> InputSpec:
        """Makes the token that was masked, at each place."""
        return InputSpec((batch, seq), self.vocabulary)


def _collage(size: str, parameters: int, hidden: int, layers: int) -> ZooModel:
    return ZooModel(
        name=f"bert-{size}",
        family="bert",
        source="Collage section 2.5.1 (Devlin et al. 2018)",
        config=BertConfig(hidden, layers, hidden // 64, vocabulary=30522, seq=512),
        is_trained_in_paper=False,
        expected_parameters=parameters,
    )


def _alpaserve(size: str, parameters: int, hidden: int, layers: int, heads: int, note: str = "") -> ZooModel:
    return ZooModel(
        name=f"alpaserve-bert-{size}",
        family="bert",
        source="AlpaServe table 4.1",
        config=BertConfig(hidden, layers, heads, vocabulary=51200, seq=2048),
        is_trained_in_paper=False,
        expected_parameters=parameters,
        note=note or "The table gives sizes in GB alone; the dimensions are those of GPT-3 in Alpa table 3.6.",
    )


MODELS = (
    _collage("base", 110_000_000, 768, 12),
    _collage("large", 340_000_000, 1024, 24),
    _alpaserve(
        "1.3b",
        1_300_000_000,
        2048,
        24,
        32,
        note="The table's 2.4 GB are 1.2B parameters at two bytes, without embeddings; its name says 1.3B.",
    ),
    _alpaserve("2.7b", 2_700_000_000, 2560, 32, 32),
    _alpaserve("6.7b", 6_700_000_000, 4096, 32, 32),
    _alpaserve(
        "104b",
        104_000_000_000,
        8192,
        128,
        64,
        note="The table gives no dimensions; these give the 103.5B that AlpaServe's code names.",
    ),
)
