"""The outcome of one request."""

from dataclasses import dataclass
from itertools import pairwise

from benchmarks.serve.workload import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The times of one request, in seconds from the start of the run.

    Attributes:
        sent_s, finished_s: when the request left and when its answer was over.
        token_times_s: arrival of each event that carried text.
        num_tokens: output tokens by the server's `usage`, of all samples.
        error: why it failed; empty if it did not.
        text: of all samples, as it came.
    """

    request: Request
    sent_s: float
    finished_s: float
    token_times_s: tuple[float, ...] = ()
    num_tokens: int = 0
    error: str = ""
    text: str = ""

    @property
    def lag_s(self) -> float:
        """How late the client itself sent the request."""
        return self.sent_s - self.request.arrival_s

    @property
    def ttft_s(self) -> float:
        """Time to first token."""
        return self.token_times_s[0] - self.sent_s

    @property
    def latency_s(self) -> float:
        """Time to the last token."""
        return self.token_times_s[-1] - self.sent_s

    @property
    def num_tokens_per_sample(self) -> float:
        return self.num_tokens / self.request.n

    @property
    def tpot_s(self) -> float | None:
        """Time per output token of a sample after the first; None for a single token."""
        if self.num_tokens_per_sample < 2:
            return None
        return (self.token_times_s[-1] - self.token_times_s[0]) / (self.num_tokens_per_sample - 1)

    @property
    def normalised_latency_s(self) -> float:
        """Time to the last token, divided by the output tokens of a sample."""
        return self.latency_s / self.num_tokens_per_sample

    @property
    def gaps_s(self) -> list[float]:
        """Time between one event that carried text and the next."""
        return [later_s - earlier_s for earlier_s, later_s in pairwise(self.token_times_s)]
