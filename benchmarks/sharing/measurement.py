"""Blocks that running sequences have, and blocks that they would have if none were shared."""

from dataclasses import dataclass, field, replace
from itertools import chain
from statistics import fmean

from benchmarks.engine.runner import ObservedRunner
from benchmarks.engine.service import as_group, run_at_full_load
from benchmarks.serve.workload import Request, make_workload
from benchmarks.sharing.case import Case, Method
from benchmarks.sharing.prompt import Corpus
from headway.core.request import BeamSearch, GenerationRequest, SamplingParams
from headway.engine.batch import Runner, StepBatch
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine

SEED = 15


@dataclass(slots=True)
class SharingCount:
    """Counts the blocks of every batch.

    Attributes:
        saved: of each step, the share of the blocks that sharing makes unnecessary.
    """

    saved: list[float] = field(default_factory=list)

    def observe(self, batch: StepBatch) -> None:
        tables = [share.sequence.block_table for share in batch.sequences]
        num_unshared = sum(map(len, tables))
        num_distinct = len(set(chain.from_iterable(tables)))
        self.saved.append(1 - num_distinct / num_unshared)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """The result of a case.

    Attributes:
        saved: blocks saved over blocks without sharing, the mean over the steps.
    """

    case: Case
    saved: float
    num_steps: int
    mean_prompt_tokens: float
    mean_output_tokens: float


def measure_sharing(case: Case, runner: Runner, *, config: EngineConfig, corpus: Corpus, num_requests: int) -> Sharing:
    """Serve the case's requests at full load."""
    requests = make_requests(case, corpus, num_requests=num_requests, limit=config.max_model_len)
    count = SharingCount()
    config = replace(config, enable_prefix_cache=case.method is Method.PREFIX)
    engine = Engine(config, runner=ObservedRunner(runner, observe=count.observe), clock=lambda: 0.0)
    for index, request in enumerate(requests):
        engine.submit_group(decode(case, request, str(index)))
    num_outputs = num_requests * (case.size if case.method is Method.PARALLEL else 1)
    run_at_full_load(engine, num_sequences=num_outputs, on_steady=count.saved.clear)
    return Sharing(
        case=case,
        saved=fmean(count.saved),
        num_steps=len(count.saved),
        mean_prompt_tokens=fmean(len(request.prompt_token_ids) for request in requests),
        mean_output_tokens=fmean(request.num_output_tokens for request in requests),
    )


def make_requests(case: Case, corpus: Corpus, *, num_requests: int, limit: int) -> list[Request]:
    """Requests of the dataset's lengths, no longer than `limit`, whose prompts the model knows how to go on from."""
    prefix = corpus.take(case.size) if case.method is Method.PREFIX else ()
    spec = case.dataset.workload(num_requests, seed=SEED, n=case.size if case.method is Method.PARALLEL else 1)
    requests = []
    for request in make_workload(spec):
        prompt = prefix + corpus.take(len(request.prompt_token_ids))
        num_output = min(request.num_output_tokens, limit - len(prompt))
        requests.append(replace(request, prompt_token_ids=prompt, num_output_tokens=num_output))
    return requests


def decode(case: Case, request: Request, name: str) -> list[GenerationRequest]:
    """The request as the case wants it decoded."""
    sampling = SamplingParams(temperature=1.0)
    if case.method is Method.BEAM:
        sampling = SamplingParams(beam=BeamSearch(width=case.size))
    return list(as_group(request, name, sampling))
