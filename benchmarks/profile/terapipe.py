"""Fits TeraPipe's bilinear context term to TeraPipe's own tables."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headway.profiler.formats import terapipe
from headway.profiler.formats.document import read_document


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextError:
    """Errors on slices that were held out of the fit; `largest` over all of them."""

    table: str
    num_held_out: int
    median: float
    largest: float


def context_errors(directory: Path) -> Iterator[ContextError]:
    """Fits every table under the directory, and returns the errors."""
    for path in sorted([*directory.glob("*.json"), *directory.glob("*.json.gz")]):
        document = read_document(path.read_bytes())
        if not terapipe.recognises(document):
            continue
        for profile in terapipe.read(document, hardware="V100-16", created_at_s=0.0):
            if profile.forward is not None:
                yield ContextError(
                    table=f"{profile.model}, {profile.pp} x {profile.op}",
                    num_held_out=profile.forward.num_held_out,
                    median=profile.forward.relative_error,
                    largest=profile.forward.max_relative_error,
                )
