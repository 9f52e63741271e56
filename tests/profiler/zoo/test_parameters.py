"""Models in full size, on the meta device, have the parameters that their sources say, and documentation says both."""

from functools import cache
from math import floor, log10
from pathlib import Path

import pytest
from torch import nn

from headway.profiler.zoo.listing import markdown, num_parameters
from headway.profiler.zoo.network import make_network
from headway.profiler.zoo.registry import find, models

DOCUMENTATION = Path(__file__).parents[3] / "docs" / "profile.md"
ROUNDED = {
    "gpt3-1b",
    "alpa-gpt3-15b",
    "tessel-gpt-11b",
    "alpa-moe-1.3b",
    "alpaserve-moe-1.3b",
    "wide-resnet-13b",
}
"""More than 2 % away from their tables' figures, which have one or two digits and to which they round."""

counted = cache(num_parameters)


@pytest.mark.parametrize("model", [model for model in models() if model.expected_parameters], ids=lambda m: m.name)
def test_parameters_are_within_two_percent_of_the_source(model) -> None:
    built, said = counted(model), model.expected_parameters
    if model.name not in ROUNDED:
        assert abs(built - said) <= 0.02 * said
    else:
        digits = len(str(said).rstrip("0"))
        assert round(built, digits - 1 - floor(log10(built))) == said
        assert "rounds" in model.note


def gpt(layers: int, hidden: int, vocabulary: int, seq: int) -> int:
    """12 H^2 + 13 H a layer, embeddings of tokens and positions, the last norm."""
    return layers * (12 * hidden**2 + 13 * hidden) + (vocabulary + seq) * hidden + 2 * hidden


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("gpt3-175b", gpt(96, 12288, 50257, 2048)),
        ("alpa-gpt3-39b", gpt(48, 8192, 51200, 1024)),
        ("tessel-gpt-77b", gpt(80, 8192, 1_500_000, 1024)),
        # Four branches of eight layers.
        ("mmt", 32 * (12 * 1024**2 + 13 * 1024)),
        ("two-branch", 8 * (12 * 1024**2 + 9 * 1024)),
        # Seven towers of four layers, seven tables, four layers on 7 * 4096 + 7 * 100 * 64 numbers, the output.
        ("dlrm", 31 * (4096**2 + 4096) + 7 * 64_000_000 + (73472 + 1) * 4096 + 4097),
        ("candle-uno", 28 * (4096**2 + 4096) + 7 * 4096 + 1),
        ("candle-uno-16", 64 * (4096**2 + 4096) + 16 * 4096 + 1),
        # As torchvision counts its weights.
        ("resnext50", 25_028_904),
        # ResNet-50, 25,557,032 there, with 27 weights for each 9 of 3 x 3, 343 for each 49 of 7 x 7, fewer classes.
        ("resnet3d-50", 25_557_032 + 18 * 1_257_472 + 294 * 3 * 64 - 600 * 2049),
        ("dcgan", 100 * 16384 + 25 * (1024 * 512 + 512 * 256 + 256 * 128 + 128 * 3) + 2 * (1024 + 512 + 256 + 128)),
    ],
)
def test_parameters_are_those_counted_by_hand(name: str, parameters: int) -> None:
    assert counted(find(name)) == parameters


@pytest.mark.parametrize(
    ("name", "part", "count"),
    [
        *((f"gpt3-{size}", "layers", n) for size, n in (("1b", 24), ("13b", 40), ("44b", 96), ("175b", 96))),
        *((f"alpa-gpt3-{size}", "layers", n) for size, n in (("350m", 24), ("1.3b", 24), ("2.6b", 32), ("6.7b", 32))),
        *((f"alpa-gpt3-{size}", "layers", 48) for size in ("15b", "39b")),
        *((f"alpa-moe-{size}", "layers", n) for size, n in (("380m", 8), ("1.3b", 16), ("27b", 16), ("70b", 32))),
        *((f"tessel-gpt-{size}", "layers", n) for size, n in (("11b", 32), ("24b", 40), ("47b", 48), ("77b", 80))),
        *((f"tessel-mt5-{size}", "encoder", n) for size, n in (("1.8b", 24), ("9.5b", 24), ("43b", 32), ("88b", 40))),
        ("tessel-mt5-88b", "decoder", 40),
        ("llama-70b", "layers", 80),
        ("mmt", "branches", 4),
        ("two-branch", "branches", 2),
        ("dlrm", "dense", 7),
        ("dlrm", "sparse", 7),
        ("candle-uno", "branches", 7),
        *((f"candle-uno-{n}", "branches", n) for n in (2, 4, 8, 16)),
        # Two cells in the stem, three stacks, two reductions between them.
        ("nasnet-a-large", "cells", 2 + 18 + 2),
        ("nasnet-a-mobile", "cells", 2 + 12 + 2),
    ],
)
def test_models_have_as_many_parts_as_their_sources_say(name: str, part: str, count: int) -> None:
    assert len(make_network(find(name)).get_submodule(part)) == count
    small = make_network(find(name).small()).get_submodule(part)
    assert len(small) == count if part in {"branches", "dense", "sparse"} else len(small) >= 2


@pytest.mark.parametrize(
    ("name", "experts"), [("380m", 8), ("1.3b", 16), ("2.4b", 16), ("10b", 32), ("27b", 48), ("70b", 64)]
)
def test_every_second_layer_of_gshard_has_experts(name: str, experts: int) -> None:
    layers = make_network(find(f"alpa-moe-{name}")).get_submodule("layers")
    widths = [getattr(layer.feed_forward, "num_experts", 0) for layer in layers]
    assert widths == [0, experts] * (len(widths) // 2)


@pytest.mark.parametrize(("name", "convolutions"), [("250m", 50), ("13b", 101)])
def test_residual_networks_are_as_deep_as_they_are_called(name: str, convolutions: int) -> None:
    network = make_network(find(f"wide-resnet-{name}"))
    layers = [layer for layer, module in network.named_modules() if isinstance(module, (nn.Conv2d, nn.Linear))]
    assert len([layer for layer in layers if "shortcut" not in layer]) == convolutions


def test_documentation_has_the_table() -> None:
    """After a change put in the output of: python -m headway.profiler.zoo"""
    assert markdown(models()) in DOCUMENTATION.read_text()
