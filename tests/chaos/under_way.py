"""What is under way in a stack, by the books of each process that has a part in requests."""

import re
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import httpx

from tests.integration.stack import RunningStack

_TIMEOUT_S = 5.0
_BOOKS = {
    "gateway": ("gateway_in_flight_requests",),
    "router": ("route_in_flight_requests", "route_queued_requests"),
    "worker": (
        "num_requests_running",
        "num_requests_waiting",
        "kv_cache_usage_perc",  # of blocks that are only cached it says nothing
        "cpu_cache_usage_perc",
    ),
}


class UnderWay:
    """Looks into the books directly, all at once: a look takes some milliseconds, and takes nothing from the stack."""

    def __init__(self, stack: RunningStack) -> None:
        self._stack = stack
        self._find()

    def look(self) -> list[str]:
        """Which books have something in them. A process that does not answer is looked for anew.

        Raises:
            httpx.TransportError: one does not answer.
        """
        try:
            with ThreadPoolExecutor(len(self._endpoints)) as pool:
                return sorted(chain.from_iterable(pool.map(open_books, self._endpoints.items())))
        except httpx.TransportError:
            self._find()
            raise

    def _find(self) -> None:
        processes = self._stack.status()["controller"]["processes"]
        self._endpoints = {
            (each["kind"], each["name"]): each["metrics_endpoint"] for each in processes if each["kind"] in _BOOKS
        }


def open_books(process: tuple[tuple[str, str], str]) -> list[str]:
    """Which books have something in them; of a gateway, router or worker: its kind, its name, where its metrics are.

    Raises:
        httpx.TransportError: it does not answer.
    """
    (kind, name), endpoint = process
    text = httpx.get(f"http://{endpoint}/metrics", timeout=_TIMEOUT_S).text
    return [f"{name}'s {book}" for book in _BOOKS[kind] if _total(text, book)]


def _total(text: str, book: str) -> float:
    return sum(float(value) for value in re.findall(rf"^headway:{book}(?:{{.*}})? (.*)$", text, re.MULTILINE))
