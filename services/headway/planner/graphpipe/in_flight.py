"""How many samples a stage holds so that the ones behind it never wait (GraphPipe, appendix A.1). Pure."""

from collections.abc import Sequence

from headway.planner.graphpipe.schedule import Passes, ScheduledStage, first_end, kfkb


def table_in_flight(k: int, micro_batch: int, next_k: int, next_micro_batch: int, next_in_flight: int) -> int:
    """ComputeInFlight: samples in flight of a stage before another one, by the appendix's table.

    The table is right where forward and backward passes take equally long; see `simulated_in_flight`.

    Args:
        k, micro_batch: of the stage, which runs k forward and k backward passes of so many samples in turn.
        next_k, next_micro_batch, next_in_flight: of the stage behind it.
    """
    own, behind = k * micro_batch, next_k * next_micro_batch
    larger = max(micro_batch, next_micro_batch)
    if own < next_micro_batch:
        return next_in_flight + next_micro_batch
    if behind < micro_batch:
        return next_in_flight + own - behind + micro_batch
    if own == behind:
        return next_in_flight + (own if own == larger else 2 * larger)
    if own < behind:
        return next_in_flight + (larger if own == larger else 2 * larger)
    return next_in_flight + (own if behind == larger else own - behind + 2 * larger)


def simulated_in_flight(stage: ScheduledStage, later: Sequence[ScheduledStage], *, batch: int, k: int = 1) -> Passes:
    """The kFkB passes with the shortest warm-up with which a stage ends as early as with any.

    Args:
        stage: its passes are not read; its successors are places in `later`.
        later: scheduled stages, each before its successors.
    """
    number = batch // stage.micro_batch
    tried = (kfkb(number, warm_up=warm_up, k=k) for warm_up in range(1, number + 1))
    ends = {passes: first_end(stage, passes, later) for passes in tried}
    best_s = min(ends.values())
    return next(passes for passes, end_s in ends.items() if end_s <= best_s * (1 + 1e-9))


def shortest_warm_up(stage: ScheduledStage, later: Sequence[ScheduledStage], *, batch: int) -> int:
    """Micro-batches that a stage runs forward before its first backward pass so that 1F1B ends as early as with all of
    them, by bisection: more never make it later.

    Args:
        stage: its passes are not read; its successors are places in `later`.
        later: scheduled stages, each before its successors.
    """
    number = batch // stage.micro_batch

    def end_s(warm_up: int) -> float:
        return first_end(stage, kfkb(number, warm_up=warm_up), later)

    best_s = end_s(number) * (1 + 1e-9)
    low, high = 1, number
    while low < high:
        middle = (low + high) // 2
        if end_s(middle) <= best_s:
            high = middle
        else:
            low = middle + 1
    return low
