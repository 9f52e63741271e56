"""DLRM: branches over dense features beside embedding bags over sparse ones, concatenated, and an MLP over all."""

from dataclasses import dataclass, replace
from typing import Self

from headway.profiler.zoo.model import InputSpec, ZooModel


@dataclass(frozen=True, slots=True, kw_only=True)
class DlrmConfig:
    """Sizes of a DLRM; implements `headway.profiler.zoo.model.Architecture`. The embeddings of one bag are
    concatenated."""

    num_dense: int
    num_sparse: int
    num_branch_layers: int
    num_top_layers: int
    hidden: int
    num_entries: int
    embedding: int
    bag_size: int

    @property
    def seq(self) -> None:
        return None

    def small(self) -> Self:
        return replace(self, hidden=16, num_entries=32, embedding=4, bag_size=3)

    def inputs(self, *, batch: int, seq: int) -> tuple[InputSpec, ...]:  # noqa: ARG002 - it has no sequences
        """Makes the dense features of each branch, then the entries in each bag."""
        dense = InputSpec((batch, self.hidden))
        sparse = InputSpec((batch, self.bag_size), self.num_entries)
        return (dense,) * self.num_dense + (sparse,) * self.num_sparse

    def targets(self, *, batch: int, seq: int) -> None:  # noqa: ARG002 - it has no classes
        return None


MODELS = (
    ZooModel(
        name="dlrm",
        family="dlrm",
        source="GraphPipe appendix A.2 (thesis section 3.10.3)",
        config=DlrmConfig(
            num_dense=7,
            num_sparse=7,
            num_branch_layers=4,
            num_top_layers=4,
            hidden=4096,
            num_entries=1_000_000,
            embedding=64,
            bag_size=100,
        ),
        is_trained_in_paper=True,
        note="The number of feed-forward layers after the interaction is not given: four, as in the branches.",
    ),
)
