"""How busy a worker is."""

from dataclasses import dataclass

from headway.core.step_work import StepWork

_NO_WORK = StepWork()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """What a worker says of itself, with the limits of the model that it has loaded (zeros before it has one).

    Attributes:
        model, state: what it serves; 'starting', 'loading', 'ready', 'draining', or 'rank' where another worker leads.
        num_running, num_waiting: sequences, those handed to it but not yet scheduled among the waiting ones.
        num_pending_prefill_tokens: prompt tokens of all of them that are still to be computed.
        num_context_tokens: context lengths of the running sequences, summed.
        num_blocks, num_free_blocks: KV blocks in all; those that a new sequence could have, evictable ones included.
        num_preemptions: since the model was loaded.
        num_prefix_hit_tokens, num_prefix_query_tokens: found and looked up in the prefix cache, since then.
        fetch_bytes_per_s: at which blocks came from other workers lately; 0 where none did.
        work: of all its steps since then; none where they are not counted.
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
    work: StepWork = _NO_WORK
