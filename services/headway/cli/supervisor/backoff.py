"""The delay before a dead process is started again."""

_FIRST_S = 0.1
_LONGEST_S = 5.0
_STEADY_AFTER_S = 10.0


class Backoff:
    """Delay before a restart: 0.1 s after a first death, doubling up to 5 s; a life of 10 s or more resets it."""

    def __init__(self) -> None:
        self._num_quick_deaths = 0

    @property
    def num_quick_deaths(self) -> int:
        """Number of deaths in a row, each within 10 s of the start."""
        return self._num_quick_deaths

    def next_delay_s(self, *, lived_s: float) -> float:
        """Returns the seconds to wait after the death of a process that lived for `lived_s`."""
        self._num_quick_deaths = 1 if lived_s >= _STEADY_AFTER_S else self._num_quick_deaths + 1
        return float(min(_LONGEST_S, _FIRST_S * 2 ** (self._num_quick_deaths - 1)))
