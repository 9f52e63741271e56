"""A server of another engine that somebody else runs, and that a worker stands in for."""

from dataclasses import dataclass
from pathlib import PurePath

API_KEY = "HEADWAY_ENGINE_API_KEY"
"""The environment variable with the key that servers ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineServer:
    """Where the server of a model is.

    Attributes:
        model: Headway's name of the model.
        url: of its HTTP interface.
        events: where it publishes those of its cache, `tcp://HOST:PORT`; empty where it does not.
    """

    model: str
    url: str
    events: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """A model as a server says that it serves it.

    Attributes:
        model: Headway's name of the model that the server is for.
        url: of its HTTP interface.
        names: of the model there, and the path or name that it was loaded from.
        num_blocks: of its KV cache, `block_size` tokens each.
        max_model_len: longest sequence in tokens.
        has_prefix_cache: whether it computes prompts that begin alike once.
    """

    model: str
    url: str
    names: tuple[str, ...]
    num_blocks: int
    block_size: int
    max_model_len: int
    has_prefix_cache: bool

    def serves(self, model: str, directory: str) -> bool:
        """Whether it is the model of that name, or of that directory, which may lie elsewhere on the server."""
        return model in self.names or PurePath(directory).name in {PurePath(name).name for name in self.names}
