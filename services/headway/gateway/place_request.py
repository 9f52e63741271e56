"""What the router is asked for one prompt of a job. Pure."""

from headway.core.block_hash import block_hashes
from headway.gateway.job import Job
from headway.gateway.lease import PlaceRequest


def place_request(job: Job, prompt_index: int) -> PlaceRequest:
    """Prefixes are hashed only where they can make a difference: not of a prompt that is scored, and so computed."""
    model, prompt, salt = job.model, job.prompts[prompt_index], job.cache_salt.encode()
    is_scored = job.options.num_prompt_logprobs is not None
    counts = model.block_size > 0 and not is_scored and (model.num_replicas > 1 or bool(job.slo))
    hashes = block_hashes(prompt.token_ids, block_size=model.block_size, salt=salt) if counts else []
    return PlaceRequest(
        request_id=f"{job.request_id}/{prompt_index}" if len(job.prompts) > 1 else job.request_id,
        model=model.worker_model,
        num_prompt_tokens=len(prompt.token_ids),
        max_output_tokens=job.samplings[prompt_index].max_tokens,
        num_sequences=job.options.num_parallel,
        slo=job.slo,
        arrived_s=job.arrived_s,
        priority=job.priority,
        stays=job.options.beam_width is not None,
        block_hashes=tuple(hashes),
        tenant=job.tenant,
        tenant_weight=job.tenant_weight,
        traceparent=job.traceparent,
        adapter="" if model.adapter is None else model.adapter.key,
    )
