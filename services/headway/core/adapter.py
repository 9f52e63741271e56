"""A LoRA adapter: small changes of a model's weights that are served under a name of their own."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """Attributes:
    directory: of its files, the same on every worker.
    digest: of their content: the same name may stand for others later.
    """

    name: str
    directory: str
    digest: str

    @property
    def key(self) -> str:
        """Names the adapter and its content, in caches and in reports of load."""
        return f"{self.name}@{self.digest}"
