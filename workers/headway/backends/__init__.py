"""Kernel libraries as backends: what each compiles, and modules that run on several of them."""

from typing import Any

_PUBLIC = {"compile": "headway.backends.compile", "Compiler": "headway.backends.compile"}


def __getattr__(name: str) -> Any:
    """Imports what is public when it is asked for: a worker needs no search."""
    from importlib import import_module

    if name not in _PUBLIC:
        raise AttributeError(f"headway.backends has no '{name}'; it has {', '.join(_PUBLIC)}")
    return getattr(import_module(_PUBLIC[name]), name)
