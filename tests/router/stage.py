"""A dispatcher, some workers and a clock, for tests of whole decisions."""

from dataclasses import replace
from typing import Any

from headway.router.dispatcher import Dispatcher, Shortage
from headway.router.lease import Lease
from headway.router.policies.registry import make_policy
from headway.router.queued_request import QueuedRequest
from headway.router.request import RoutingRequest
from tests.router.harness import make_plan
from tests.router.scripted import IDLE

REQUEST = RoutingRequest(
    request_id="a", model="llama", gateway_id="gateway-0", num_prompt_tokens=400, max_output_tokens=64
)


class Stage:
    """A dispatcher, some workers and a clock."""

    def __init__(self, num_workers: int, *, policy: str = "balanced", **options: Any) -> None:
        self.now_s = 100.0
        self.dispatcher = Dispatcher(
            policy=make_policy(policy),
            instance_id="test",
            clock=lambda: self.now_s,
            **{"max_group_sequences": 512, **options},
        )
        self.worker_ids = [f"worker-{i}" for i in range(num_workers)]
        for worker_id in self.worker_ids:
            self.report(worker_id)
        self.dispatcher.fleet.apply(make_plan(*self.worker_ids))
        self.num_requests = 0

    def report(self, worker_id: str, **changes: object) -> None:
        group = self.dispatcher.fleet.join(worker_id, endpoint=f"host:{worker_id}", group_id="")
        self.dispatcher.fleet.update(group, [replace(IDLE, **changes)], now_s=self.now_s)  # type: ignore[arg-type]

    def place(self, *, cached_blocks: dict[str, int] | None = None, **changes: object) -> Lease | Shortage:
        self.num_requests += 1
        request = replace(REQUEST, **({"request_id": str(self.num_requests)} | changes))  # type: ignore[arg-type]
        previous = self.dispatcher.supersede(request)
        failed_at_s = previous.leased_at_s if previous else self.now_s
        queued = QueuedRequest(
            request=request, arrived_s=self.now_s, failed_at_s=failed_at_s, cached_blocks=cached_blocks or {}
        )
        return self.dispatcher.place(queued)

    def lease(self, **changes: object) -> Lease:
        found = self.place(**changes)  # type: ignore[arg-type]
        assert isinstance(found, Lease)
        return found
