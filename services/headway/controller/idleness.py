"""For how long nobody has asked for a model, as far as that is known. Pure: time is given.

It counts from when the model was first seen without a request, by one router, without a gap: where the router is away,
is another one, or does not say what it counted, nothing is known of before, and that is no idle time.
"""

from collections.abc import Iterable

from headway.controller.router_view import ModelSample, RouterView

_GAP_S = 15.0


class Idleness:
    """Follows the arrivals that a router has counted."""

    def __init__(self) -> None:
        self._run_id = ""
        self._seen_s = 0.0
        self._since: dict[str, tuple[int, float]] = {}  # how many had arrived, and since when no more

    def observe(self, view: RouterView, *, models: Iterable[str], now_s: float) -> None:
        """Takes in what the router knows of models; others are forgotten."""
        if not view.run_id or view.run_id != self._run_id or now_s - self._seen_s > _GAP_S:
            self._since = {}
        self._run_id, self._seen_s = view.run_id, now_s
        self._since = {name: self._quiet(name, view.models.get(name, ModelSample()), now_s) for name in models}

    def idle_s(self, model: str, *, now_s: float) -> float:
        """Seconds, 0 where nothing is known."""
        if not self._run_id or now_s - self._seen_s > _GAP_S or model not in self._since:
            return 0.0
        return now_s - self._since[model][1]

    def _quiet(self, name: str, sample: ModelSample, now_s: float) -> tuple[int, float]:
        before = self._since.get(name)
        if before is not None and not sample.num_present and before[0] == sample.num_arrived:
            return before
        return sample.num_arrived, now_s
