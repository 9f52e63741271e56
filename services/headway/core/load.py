"""The load of a worker."""

from dataclasses import dataclass

from headway.core.step_work import StepWork

_NO_WORK = StepWork()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """A worker's report of its load, with the limits of the model that it has loaded (zeros before it has one).

    Attributes:
        model, state: what it serves; 'starting', 'loading', 'ready', 'draining', or 'rank' where another worker leads.
        num_running, num_waiting: running and waiting sequences; those not yet scheduled count as waiting.
        num_pending_prefill_tokens: prompt tokens of all of them that are still to be computed.
        num_context_tokens: the sum of the running sequences' context lengths.
        num_blocks, num_free_blocks: KV blocks in all; those that a new sequence could have, evictable ones included.
        num_preemptions: preemptions since the model was loaded.
        num_prefix_hit_tokens, num_prefix_query_tokens: tokens found and looked up in the prefix cache since then.
        fetch_bytes_per_s: how fast blocks came from other workers lately; 0 where none did.
        adapters: that the model's engine has loaded, by key.
        backend: what runs an encoder's layers, in words; empty where no backend was asked for.
        work: the work of all its steps since then; empty where it is not counted.
    """

    model: str = ""
    state: str = "ready"
    num_running: int = 0
    num_waiting: int = 0
    num_pending_prefill_tokens: int = 0
    num_context_tokens: int = 0
    num_blocks: int = 0
    num_free_blocks: int = 0
    max_num_seqs: int = 0
    max_num_batched_tokens: int = 0
    max_model_len: int = 0
    block_size: int = 0
    num_preemptions: int = 0
    num_prefix_hit_tokens: int = 0
    num_prefix_query_tokens: int = 0
    fetch_bytes_per_s: float = 0.0
    backend: str = ""
    work: StepWork = _NO_WORK
    adapters: tuple[str, ...] = ()
