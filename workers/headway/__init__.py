"""Headway plans, trains and serves large models.

This is what a program of one's own imports; each name is loaded when it is asked for, so that `import headway` costs
nothing. All else of `headway` are rooms of several source trees, which are found as in a namespace package.
"""

from importlib import import_module
from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.cli.plan_file import read_plan
    from headway.train.parallel import ParallelModule, parallelize

__all__ = ["ParallelModule", "parallelize", "read_plan"]
__path__ = extend_path(__path__, __name__)

_ROOMS = {
    "ParallelModule": "headway.train.parallel",
    "parallelize": "headway.train.parallel",
    "read_plan": "headway.cli.plan_file",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_ROOMS[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
