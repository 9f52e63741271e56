"""Writes the table of results: a row for each scale and pattern."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.alpaserve.fidelity.cell import Cell

TARGET = 0.03
"""What measured and simulated attainment may differ by."""


def markdown(cells: Sequence[Cell]) -> str:
    """Writes the table; under it the overhead of answers, and the largest difference beside the target."""
    rows = [
        f"| {cell.pattern} | {cell.slo_scale:g}x | {cell.num_requests} | {100 * cell.simulated:.1f} % "
        f"| {100 * cell.measured:.1f} % | {100 * cell.difference:+.1f} | {cell.slowness:.2f} |"
        for cell in cells
    ]
    largest = largest_difference(cells)
    return "\n".join(
        [
            "| arrivals | SLO | requests | simulated | measured | points | time over simulated |",
            "|---|---:|---:|---:|---:|---:|---:|",
            *rows,
            "",
            f"Counted for an answer besides the model: {1000 * cells[0].answer_overhead_s:.1f} ms.",
            "",
            f"Largest difference {100 * largest:.1f} points, target at most {100 * TARGET:g}: "
            + ("met" if largest <= TARGET else "**missed**"),
        ]
    )


def document(cells: Sequence[Cell]) -> dict[str, Any]:
    return {
        "largest_difference": largest_difference(cells),
        "target": TARGET,
        "answer_overhead_s": cells[0].answer_overhead_s,
        "cells": [asdict(cell) | {"difference": cell.difference} for cell in cells],
    }


def largest_difference(cells: Sequence[Cell]) -> float:
    return max(abs(cell.difference) for cell in cells)
