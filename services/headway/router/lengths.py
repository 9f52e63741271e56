"""Tracks how long a model's outputs usually are."""

_INITIAL_TOKENS = 128.0
_WEIGHT = 0.05


class OutputLengths:
    """A moving average of output tokens per sequence, by model."""

    def __init__(self) -> None:
        self._means: dict[str, float] = {}

    def mean(self, model: str) -> float:
        return self._means.get(model, _INITIAL_TOKENS)

    def note(self, model: str, num_tokens: float) -> None:
        mean = self.mean(model)
        self._means[model] = mean + _WEIGHT * (num_tokens - mean)
