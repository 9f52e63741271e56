"""The requests of one run: lengths, prompts and arrival times, all from one seed."""

import math
import random
from dataclasses import dataclass
from statistics import NormalDist

FIRST_PROMPT_TOKEN = 10  # ids below are special tokens in most vocabularies
MIN_TOKENS = 4
MAX_TOKENS = 1024
PROMPT_MEAN = 160.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """What to send. The defaults follow ShareGPT's first turns: many short prompts and a long tail.

    Attributes:
        num_requests: how many.
        rate_per_s: mean of the Poisson arrivals; None sends everything at once.
        seed: same seed, same requests.
        vocab_size: prompt token ids lie below it.
        prompt_mean, output_mean: tokens per request, those of the shared prefix not counted.
        prompt_sigma, output_sigma: spread of the lognormal lengths (of their logarithm); 0 makes them all equal.
        shared_prefix_tokens: that every prompt starts with.
        n: samples of each request.
    """

    num_requests: int
    rate_per_s: float | None = None
    seed: int = 0
    vocab_size: int = 32_000
    prompt_mean: float = PROMPT_MEAN
    prompt_sigma: float = 0.9
    output_mean: float = 96.0
    output_sigma: float = 0.0
    shared_prefix_tokens: int = 0
    n: int = 1

    @property
    def title(self) -> str:
        arrivals = "burst" if self.rate_per_s is None else f"{self.rate_per_s:g} requests/s"
        prefix = f" that share {self.shared_prefix_tokens} tokens" if self.shared_prefix_tokens else ""
        samples = f", {self.n} samples each" if self.n > 1 else ""
        return f"{arrivals}, {self.num_requests} requests{prefix}{samples}"


@dataclass(frozen=True, slots=True)
class Request:
    """One request: when it arrives (seconds from the start of the run), its prompt, and what it asks for.

    Attributes:
        num_output_tokens: of each of its `n` samples.
    """

    arrival_s: float
    prompt_token_ids: tuple[int, ...]
    num_output_tokens: int
    n: int = 1


def make_workload(spec: WorkloadSpec) -> tuple[Request, ...]:
    """The requests in order of arrival. Prompts are random tokens, so that they share the given prefix and no more."""
    generator = random.Random(spec.seed)
    prefix = draw_prompt(spec.shared_prefix_tokens, spec.vocab_size, generator)
    prompt_lengths = draw_lengths(spec.num_requests, spec.prompt_mean, spec.prompt_sigma, generator)
    output_lengths = draw_lengths(spec.num_requests, spec.output_mean, spec.output_sigma, generator)
    arrivals = draw_arrivals(spec.num_requests, spec.rate_per_s, generator)
    return tuple(
        Request(arrival_s, prefix + draw_prompt(length, spec.vocab_size, generator), num_output_tokens, spec.n)
        for arrival_s, length, num_output_tokens in zip(arrivals, prompt_lengths, output_lengths, strict=True)
    )


def draw_lengths(num: int, mean: float, sigma: float, generator: random.Random) -> list[int]:
    """Lognormal lengths in tokens, one from each of `num` equally likely strata, shuffled.

    Strata keep the mean of a few dozen draws close to the distribution's own, which plain draws do not.
    """
    mu = math.log(mean) - sigma**2 / 2
    lengths = []
    for stratum in range(num):
        quantile = (stratum + generator.uniform(0.01, 0.99)) / num
        length = round(math.exp(mu + sigma * NormalDist().inv_cdf(quantile)))
        lengths.append(min(max(length, MIN_TOKENS), MAX_TOKENS))
    generator.shuffle(lengths)
    return lengths


def draw_arrivals(num: int, rate_per_s: float | None, generator: random.Random) -> list[float]:
    """Arrival times in seconds, the first at 0; all at 0 without a rate."""
    if rate_per_s is None:
        return [0.0] * num
    arrivals = [0.0]
    while len(arrivals) < num:
        arrivals.append(arrivals[-1] + generator.expovariate(rate_per_s))
    return arrivals


def draw_prompt(length: int, vocab_size: int, generator: random.Random) -> tuple[int, ...]:
    return tuple(generator.randrange(FIRST_PROMPT_TOKEN, vocab_size) for _ in range(length))
