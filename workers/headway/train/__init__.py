"""Training: ranks that run the lists of an execution on batches of data."""

from typing import Any

_PUBLIC = {"parallelize": "headway.train.parallel", "ParallelModule": "headway.train.parallel"}


def __getattr__(name: str) -> Any:
    """Imports what is public when it is asked for: a rank needs no capture."""
    from importlib import import_module

    if name not in _PUBLIC:
        raise AttributeError(f"headway.train has no '{name}'; it has {', '.join(_PUBLIC)}")
    return getattr(import_module(_PUBLIC[name]), name)
