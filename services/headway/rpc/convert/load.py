"""Load reports: they come many times a second from every worker."""

from collections.abc import Sequence
from dataclasses import fields

from headway.core.load import LoadReport
from headway.core.step_work import StepWork
from headway.v1 import common_pb2, worker_pb2

_NAMES = tuple(field.name for field in fields(LoadReport) if field.name != "work")
_WORK_NAMES = tuple(field.name for field in fields(StepWork))


def loads_from_pb(message: worker_pb2.WatchLoadResponse) -> list[LoadReport]:
    """Returns the load reports of all models of a worker."""
    return [_from_pb(each) for each in (message, *message.others)]


def loads_to_pb(reports: Sequence[LoadReport]) -> worker_pb2.WatchLoadResponse:
    """`reports` are one at least."""
    first, *others = (
        worker_pb2.WatchLoadResponse(**{name: getattr(report, name) for name in _NAMES}, work=_work_to_pb(report.work))
        for report in reports
    )
    first.others.extend(others)
    return first


def _from_pb(message: worker_pb2.WatchLoadResponse) -> LoadReport:
    return LoadReport(
        model=message.model,
        state=message.state,
        num_running=message.num_running,
        num_waiting=message.num_waiting,
        num_pending_prefill_tokens=message.num_pending_prefill_tokens,
        num_context_tokens=message.num_context_tokens,
        num_blocks=message.num_blocks,
        num_free_blocks=message.num_free_blocks,
        max_num_seqs=message.max_num_seqs,
        max_num_batched_tokens=message.max_num_batched_tokens,
        max_model_len=message.max_model_len,
        block_size=message.block_size,
        num_preemptions=message.num_preemptions,
        num_prefix_hit_tokens=message.num_prefix_hit_tokens,
        num_prefix_query_tokens=message.num_prefix_query_tokens,
        fetch_bytes_per_s=message.fetch_bytes_per_s,
        backend=message.backend,
        work=_work_from_pb(message.work),
        adapters=tuple(message.adapters),
    )


def _work_from_pb(message: common_pb2.StepWork) -> StepWork:
    return StepWork(
        num_steps=message.num_steps,
        num_prefill_tokens=message.num_prefill_tokens,
        num_prefill_pairs=message.num_prefill_pairs,
        num_decodes=message.num_decodes,
        num_context_tokens=message.num_context_tokens,
        duration_s=message.duration_s,
    )


def _work_to_pb(work: StepWork) -> common_pb2.StepWork:
    return common_pb2.StepWork(**{name: getattr(work, name) for name in _WORK_NAMES})
