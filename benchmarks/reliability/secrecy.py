"""Whether a tenant can tell by the time to the first token what another one has sent."""

import random
import time
from dataclasses import dataclass

import httpx
import numpy as np

from benchmarks.reliability.fairness import MODEL_NAME, key_of

_TIMEOUT_S = 120.0
_NUM_PROMPT_TOKENS = 256
_TOKEN_IDS = range(10, 3000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrecy:
    """How well times tell prompts that were sent before from new ones, as areas under the ROC curve: 0.5 is chance, 1 a
    certain tale.

    Attributes:
        others: of prompts that another tenant has sent.
        own: of prompts that the tenant itself has sent; it shows that times would tell.
    """

    num_pairs: int
    others: float
    own: float


async def measure_secrecy(url: str, *, num_pairs: int, seed: int) -> Secrecy:
    """Pairs of prompts in random order, one that was sent before and one that was not."""
    rng = random.Random(seed)
    async with httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S) as client:
        await _areas(client, rng, first="other", num_pairs=num_pairs // 20 + 1)  # warms up
        others = await _areas(client, rng, first="flood", num_pairs=num_pairs)
        own = await _areas(client, rng, first="other", num_pairs=num_pairs // 4 + 1)
    return Secrecy(num_pairs=num_pairs, others=others, own=own)


async def _areas(client: httpx.AsyncClient, rng: random.Random, *, first: str, num_pairs: int) -> float:
    times_s: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(num_pairs):
        known, new = (rng.sample(_TOKEN_IDS, _NUM_PROMPT_TOKENS) for _ in range(2))
        await _first_token_s(client, known, tenant=first)
        for is_known in rng.sample([True, False], 2):
            times_s[is_known].append(await _first_token_s(client, known if is_known else new, tenant="other"))
    return area_under_curve(times_s[True], times_s[False])


def area_under_curve(known: list[float], new: list[float]) -> float:
    """How likely one of the first is below one of the second; a tie counts half."""
    first, second = np.asarray(known)[:, None], np.asarray(new)[None, :]
    return float(np.mean((first < second) + 0.5 * (first == second)))


async def _first_token_s(client: httpx.AsyncClient, prompt: list[int], *, tenant: str) -> float:
    """The whole answer is the first token."""
    body = {"model": MODEL_NAME, "prompt": prompt, "max_tokens": 1, "temperature": 0.0}
    started_s = time.perf_counter()
    answer = await client.post("/v1/completions", json=body, headers=key_of(tenant))
    answer.raise_for_status()
    return time.perf_counter() - started_s
