"""Stands in for a GPU's graphs: what is captured runs again, on the same buffers."""

from collections.abc import Callable


class Rerun:
    """Implements `headway.runner.step_graphs.Capture`; counts what is replayed."""

    used_bytes = 0

    def __init__(self) -> None:
        self.num_captured = 0
        self.num_replays = 0

    def __call__(self, compute: Callable[[], None]) -> Callable[[], None]:
        compute()
        self.num_captured += 1

        def replay() -> None:
            self.num_replays += 1
            compute()

        return replay
