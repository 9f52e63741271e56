"""GPT: a decoder-only transformer with learned positions; its output matrix is its token embedding."""

from dataclasses import dataclass, replace
from typing import Self

from headway.profiler.zoo.model import InputSpec, ZooModel


@dataclass(frozen=True, slots=True)
class GptConfig:
    """Sizes of a GPT; implements `headway.profiler.zoo.model.Architecture`."""

    num_layers: int
    hidden: int
    num_heads: int
    vocabulary: int
    seq: int

    def small(self) -> Self:
        return replace(self, num_layers=2, hidden=32, num_heads=4, vocabulary=64, seq=16)

    def inputs(self, *, batch: int, seq: int) -> tuple[InputSpec, ...]:
        return (InputSpec((batch, seq), self.vocabulary),)

    def targets(self, *, batch: int, seq: int) -> InputSpec:
        """Makes the token that follows each."""
        return InputSpec((batch, seq), self.vocabulary)


def _terapipe(size: str, parameters: int, layers: int, hidden: int, *, seq: int = 2048, note: str = "") -> ZooModel:
    return ZooModel(
        name=f"gpt3-{size}",
        family="gpt",
        source="TeraPipe table 2.1" if seq == 2048 else "TeraPipe table 2.4",
        config=GptConfig(layers, hidden, hidden // 128, vocabulary=50257, seq=seq),
        is_trained_in_paper=True,
        expected_parameters=parameters,
        note=note,
    )


def _alpa(size: str, parameters: int, hidden: int, layers: int, heads: int, *, note: str = "") -> ZooModel:
    return ZooModel(
        name=f"alpa-gpt3-{size}",
        family="gpt",
        source="Alpa table 3.6",
        config=GptConfig(layers, hidden, heads, vocabulary=51200, seq=1024),
        is_trained_in_paper=True,
        expected_parameters=parameters,
        note=note,
    )


def _tessel(
    size: str, parameters: int, layers: int, hidden: int, heads: int, vocabulary: int, *, note: str = ""
) -> ZooModel:
    return ZooModel(
        name=f"tessel-gpt-{size}",
        family="gpt",
        source="Tessel table III",
        config=GptConfig(layers, hidden, heads, vocabulary=vocabulary, seq=1024),
        is_trained_in_paper=True,
        expected_parameters=parameters,
        note=note or _TESSEL_NOTE,
    )


_TESSEL_NOTE = "The table gives no sequence length: 1024, as Alpa, which it follows."

MODELS = (
    _terapipe(
        "1b",
        1_000_000_000,
        24,
        2048,
        note="The table rounds down to 1B: its N and H alone give 12 N H^2 = 1.208B, the vocabulary 0.103B.",
    ),
    _terapipe("13b", 13_000_000_000, 40, 5120),
    _terapipe("44b", 44_000_000_000, 96, 6144),
    _terapipe("175b", 175_000_000_000, 96, 12288),
    _terapipe("13b-4096", 13_000_000_000, 40, 5120, seq=4096),
    _terapipe("13b-6144", 13_000_000_000, 40, 5120, seq=6144),
    _terapipe("13b-8192", 13_000_000_000, 40, 5120, seq=8192),
    _alpa("350m", 350_000_000, 1024, 24, 16),
    _alpa("1.3b", 1_300_000_000, 2048, 24, 32),
    _alpa("2.6b", 2_600_000_000, 2560, 32, 32),
    _alpa("6.7b", 6_700_000_000, 4096, 32, 32),
    _alpa("15b", 15_000_000_000, 5120, 48, 32, note="The table rounds 15.37B to 15B: 12 N H^2 = 15.10B, V H = 0.26B."),
    _alpa("39b", 39_000_000_000, 8192, 48, 64),
    _tessel(
        "11b",
        11_000_000_000,
        32,
        4096,
        32,
        1_000_000,
        note=_TESSEL_NOTE + " The table rounds 10.54B to 11B: 12 N H^2 = 6.44B, V H = 4.10B.",
    ),
    _tessel("24b", 24_000_000_000, 40, 6144, 48, 1_000_000),
    _tessel("47b", 47_000_000_000, 48, 8192, 64, 1_000_000),
    _tessel("77b", 77_000_000_000, 80, 8192, 64, 1_500_000),
)
