"""GraphPipe's transformers of parallel branches, each over features of its own, concatenated at the end."""

from dataclasses import dataclass, replace
from typing import Self

from headway.profiler.zoo.model import InputSpec, ZooModel


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiModalConfig:
    """Sizes of a multi-branch transformer; implements `headway.profiler.zoo.model.Architecture`.

    `is_plain` layers are an attention and two linear layers in a row, without norms and residual connections.
    """

    num_branches: int
    num_layers: int
    hidden: int = 1024
    inner: int = 4096
    num_heads: int = 16
    seq: int = 256
    is_plain: bool = False

    def small(self) -> Self:
        return replace(self, num_layers=2, hidden=32, inner=48, num_heads=4, seq=16)

    def inputs(self, *, batch: int, seq: int) -> tuple[InputSpec, ...]:
        """Makes embedded features for each branch."""
        return (InputSpec((batch, seq, self.hidden)),) * self.num_branches

    def targets(self, *, batch: int, seq: int) -> None:  # noqa: ARG002 - it has no classes
        return None


def _graphpipe(name: str, source: str, config: MultiModalConfig, note: str = "") -> ZooModel:
    return ZooModel(name=name, family="multimodal", source=source, config=config, is_trained_in_paper=True, note=note)


MODELS = (
    _graphpipe("mmt", "GraphPipe appendix A.2", MultiModalConfig(num_branches=4, num_layers=8)),
    _graphpipe(
        "mmt-two-branch",
        "GraphPipe section 7.3 (thesis section 3.7.3)",
        MultiModalConfig(num_branches=2, num_layers=16),
        note="The sections speak both of two and of four branches; this one has the same 32 layers in two.",
    ),
    _graphpipe("mmt-sequential", "GraphPipe appendix A.3", MultiModalConfig(num_branches=1, num_layers=32)),
    _graphpipe(
        "two-branch",
        "GraphPipe section 7.5, figure 9",
        MultiModalConfig(num_branches=2, num_layers=4, is_plain=True),
        note="The figure gives no sizes: those of MMT.",
    ),
)
