"""The zoo as a table for the documentation."""

from collections.abc import Iterable

from headway.profiler.zoo.model import ZooModel
from headway.profiler.zoo.network import make_network

HEADER = ("Name", "Source", "Parameters", "In the source", "Remarks")


def markdown(models: Iterable[ZooModel]) -> str:
    """Writes a table with one row a model: its parameters as built, and as its source says."""
    rows = [HEADER, ("---", "---", "--:", "--:", "---"), *(_row(model) for model in models)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def num_parameters(model: ZooModel) -> int:
    """Numbers that training changes; a matrix with two uses counts once."""
    return sum(parameter.numel() for parameter in make_network(model).parameters())


def _row(model: ZooModel) -> tuple[str, ...]:
    said = "" if model.expected_parameters is None else _rounded(model.expected_parameters)
    return f"`{model.name}`", model.source, _rounded(num_parameters(model)), said, model.note


def _rounded(parameters: int) -> str:
    """Writes a number with four digits at most, in billions (B) or millions (M)."""
    return f"{parameters / 1e9:.4g}B" if parameters >= 1e9 else f"{parameters / 1e6:.4g}M"
