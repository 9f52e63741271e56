"""The decodings of one prompt of a job: one for each sequence that workers run for it."""

from headway.core.request import GenerationRequest
from headway.gateway.beam import BeamDecoding
from headway.gateway.decoding import Decoding
from headway.gateway.job import Job
from headway.gateway.text.detokenizer import make_detokenizer


def decodings_of(job: Job, prompt_index: int) -> dict[str, Decoding | BeamDecoding]:
    """Returns the decodings of one prompt, by the id of the request that workers get."""
    requests = job.requests(prompt_index)
    if job.options.beam_width is not None:
        (request,) = requests
        first_index = prompt_index * job.options.n
        beams = [_decoding(job, first_index + rank, request) for rank in range(job.options.n)]
        return {request.request_id: BeamDecoding(beams)}
    first_index = prompt_index * job.options.num_samples
    return {request.request_id: _decoding(job, first_index + i, request) for i, request in enumerate(requests)}


def _decoding(job: Job, index: int, request: GenerationRequest) -> Decoding:
    return Decoding(
        index,
        request=request,
        detokenizer=make_detokenizer(job.model.tokenizer, skip_special_tokens=job.options.skip_special_tokens),
        stops=job.options.stop,
        includes_stop=job.options.include_stop_str_in_output,
        is_silent=job.options.prompt_only,
    )
