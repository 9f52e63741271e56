"""What is measured: a dataset, a way of decoding, and how many sequences share."""

from dataclasses import dataclass
from enum import StrEnum

from benchmarks.engine.dataset import ALPACA, SHAREGPT, Dataset


class Method(StrEnum):
    """The reason that sequences have blocks in common."""

    PARALLEL = "parallel sampling"
    BEAM = "beam search"
    PREFIX = "shared prefix"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One measurement.

    Attributes:
        size: samples of each request, beams, or tokens of the shared prefix.
    """

    dataset: Dataset
    method: Method
    size: int


GROUP_SIZES = (2, 4, 6)
PREFIX_SIZES = (80, 341)  # one and five examples of a translation (dissertation 5.6.4)

CASES = tuple(
    Case(dataset=dataset, method=method, size=size)
    for method, sizes in ((Method.PARALLEL, GROUP_SIZES), (Method.BEAM, GROUP_SIZES), (Method.PREFIX, PREFIX_SIZES))
    for dataset in (ALPACA, SHAREGPT)
    for size in sizes
)

# Smallest and largest share that the dissertation reports (5.6.3, figure 5.15), from size 2 to size 6.
REPORTED = {
    ("alpaca", Method.PARALLEL): (0.061, 0.098),
    ("alpaca", Method.BEAM): (0.376, 0.552),
    ("sharegpt", Method.PARALLEL): (0.162, 0.305),
    ("sharegpt", Method.BEAM): (0.443, 0.663),
}
