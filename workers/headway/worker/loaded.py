"""A loaded model of any kind, and the last step of its load."""

from collections.abc import Callable
from typing import TypeAlias

from headway.observe.tracing import Tracing
from headway.worker.loaded_encoder import LoadedEncoder
from headway.worker.loaded_model import LoadedModel
from headway.worker.loaded_rank import LoadedRank
from headway.worker.owner import Owner

Loaded: TypeAlias = LoadedModel | LoadedEncoder | LoadedRank
Start: TypeAlias = Callable[[Owner, Tracing], Loaded]
"""The last step of a load, for the event loop."""
