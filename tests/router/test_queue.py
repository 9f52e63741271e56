"""Who gets the next place."""

from dataclasses import replace

from headway.core.errors import ResourceExhaustedError
from headway.core.fair_share import FairShare
from headway.router.dispatcher import Shortage
from headway.router.lease import Lease
from headway.router.queue import WaitingQueue
from headway.router.queued_request import QueuedRequest
from headway.router.request import RoutingRequest
from tests.router.test_lease_table import make_lease


def make_ticket(
    request_id: str, *, model: str = "llama", resumed: bool = False, tenant: str = "", weight: float = 1.0
) -> QueuedRequest:
    request = RoutingRequest(
        request_id=request_id,
        model=model,
        gateway_id="gateway-0",
        num_prompt_tokens=1,
        max_output_tokens=1,
        resumed=resumed,
        tenant=tenant,
        tenant_weight=weight,
    )
    return QueuedRequest(request=request, arrived_s=0.0, failed_at_s=0.0)


class Places:
    """Gives out `num` places, in the order of asking."""

    def __init__(self, num: int, *, shortages: dict[str, Shortage] | None = None, refuses: str = "") -> None:
        self.num = num
        self.given: list[str] = []
        self._shortages = shortages or {}
        self._refuses = refuses

    def __call__(self, queued: QueuedRequest) -> Lease | Shortage:
        request_id = queued.request.request_id
        if request_id == self._refuses:
            raise ResourceExhaustedError("too late")
        if shortage := self._shortages.get(request_id):
            return shortage
        if len(self.given) == self.num:
            return Shortage.NO_ROOM
        self.given.append(request_id)
        return make_lease(f"lease-of-{request_id}", request_id=request_id)


async def test_places_go_to_those_who_came_first() -> None:
    queue, places = WaitingQueue(FairShare()), Places(2)
    futures = [queue.enter(make_ticket(name)) for name in "abc"]
    queue.serve("llama", place=places)
    assert places.given == ["a", "b"]
    assert [future.done() for future in futures] == [True, True, False]
    assert queue.num_waiting("llama") == queue.num_queued == 1


async def test_places_go_by_rank_and_among_equals_to_those_who_came_first() -> None:
    queue, places = WaitingQueue(FairShare()), Places(3)
    for name, rank in (("a", 2.0), ("b", 1.0), ("c", 1.0), ("d", 0.5)):
        queue.enter(replace(make_ticket(name), rank=(rank,)))
    queue.serve("llama", place=places)
    assert places.given == ["d", "b", "c"]


async def test_resumed_streams_go_first() -> None:
    queue, places = WaitingQueue(FairShare()), Places(1)
    for queued in (make_ticket("new"), make_ticket("resumed", resumed=True)):
        queue.enter(queued)
    queue.serve("llama", place=places)
    assert places.given == ["resumed"]


async def test_one_that_no_group_can_take_holds_up_nobody() -> None:
    queue, places = WaitingQueue(FairShare()), Places(2, shortages={"a": Shortage.NO_GROUP})
    for name in "abc":
        queue.enter(make_ticket(name))
    queue.serve("llama", place=places)
    assert places.given == ["b", "c"]
    assert queue.num_waiting("llama") == 1


async def test_one_that_is_refused_hears_it_and_the_next_is_served() -> None:
    queue, places = WaitingQueue(FairShare()), Places(1, refuses="a")
    first, second = (queue.enter(make_ticket(name)) for name in "ab")
    queue.serve("llama", place=places)
    assert isinstance(first.exception(), ResourceExhaustedError)
    assert second.result().request_id == "b"


async def test_one_that_left_gets_no_place() -> None:
    queue, places = WaitingQueue(FairShare()), Places(1)
    queued_requests = [make_ticket(name) for name in "abc"]
    futures = [queue.enter(queued) for queued in queued_requests]
    queue.leave(queued_requests[0])
    futures[1].cancel()  # its caller is about to leave
    queue.serve("llama", place=places)
    assert places.given == ["c"]


async def test_models_have_lines_of_their_own() -> None:
    queue, places = WaitingQueue(FairShare()), Places(9)
    queue.enter(make_ticket("a", model="llama"))
    queue.enter(make_ticket("b", model="opt"))
    queue.serve("opt", place=places)
    assert places.given == ["b"]
    assert (queue.num_waiting("llama"), queue.num_waiting("opt")) == (1, 0)


async def test_leaving_twice_is_no_harm() -> None:
    queue, queued = WaitingQueue(FairShare()), make_ticket("a")
    queue.enter(queued)
    queue.leave(queued)
    queue.leave(queued)
    assert queue.num_queued == 0


async def test_tenants_take_turns_by_what_they_have_had_and_each_keeps_its_own_order() -> None:
    """Each request costs 10 tokens; the one of weight 2 has two of three places."""
    fair_share = FairShare()
    queue, places = WaitingQueue(fair_share), Places(6)

    def place(queued: QueuedRequest) -> Lease | Shortage:
        fair_share.charge(queued.request.tenant, 10)
        return places(queued)

    for i in range(8):
        queue.enter(make_ticket(f"a{i}", tenant="a"))
    for i in range(8):
        queue.enter(make_ticket(f"b{i}", tenant="b", weight=2.0))
    queue.serve("llama", place=place)
    assert places.given == ["a0", "b0", "b1", "a1", "b2", "b3"]


async def test_a_tenant_without_room_holds_up_no_other() -> None:
    queue = WaitingQueue(FairShare())
    places = Places(9, shortages={"a0": Shortage.NO_ROOM})
    for name, tenant in (("a0", "a"), ("a1", "a"), ("b0", "b"), ("b1", "b")):
        queue.enter(make_ticket(name, tenant=tenant))
    queue.serve("llama", place=places)
    assert places.given == ["b0", "b1"]


async def test_a_tenant_has_its_share_of_the_line_however_long_it_is() -> None:
    queue = WaitingQueue(FairShare())
    for i in range(50):
        queue.enter(make_ticket(f"a{i}", tenant="a"))
    assert not queue.has_room("llama", tenant="a", max_queue=10)
    for i in range(5):
        queue.enter(make_ticket(f"b{i}", tenant="b"))
    assert queue.has_room("llama", tenant="b", max_queue=10)
    queue.enter(make_ticket("b5", tenant="b"))
    assert not queue.has_room("llama", tenant="b", max_queue=10)
