"""Makes up the tokens of the scheduled sequences in an emulated batch."""

import math
from dataclasses import dataclass

from headway.core.request import TokenLogprobs
from headway.engine.batch import Sample, ScheduledSequence
from headway.runner.emulated.tokens import next_token
from headway.runner.row import Row, rows_of
from headway.runner.scheduled_samples import take

NO_GUIDE = "An emulated device makes its tokens up: it cannot follow a schema, a grammar or choices."


@dataclass(frozen=True, slots=True)
class EmulatedSampler:
    """The counterpart of `headway.runner.sampler.Sampler`; it takes its own tokens for certain."""

    vocab_size: int
    eos_token_ids: tuple[int, ...]

    def sample(self, scheduled_sequences: list[ScheduledSequence]) -> list[tuple[Sample, ...]]:
        samples = iter([self._sample(row) for scheduled in scheduled_sequences for row in rows_of(scheduled)])
        return [take(scheduled, samples) for scheduled in scheduled_sequences]

    def _sample(self, row: Row) -> Sample:
        if row.sampling.guide is not None:
            return Sample((), error=NO_GUIDE)
        token_id = next_token(row, eos_token_ids=self.eos_token_ids)
        if row.sampling.beam is not None:
            return Sample((), candidates=self._candidates(token_id, num_beams=row.sampling.beam.width))
        if row.sampling.num_logprobs is None:
            return Sample((token_id,))
        return Sample((token_id,), (certain(token_id, num_top=row.sampling.num_logprobs),))

    def _candidates(self, token_id: int, *, num_beams: int) -> tuple[tuple[int, float], ...]:
        """The token and those after it in the vocabulary, each half as likely as the one before."""
        wanted = ((token_id + step) % self.vocab_size for step in range(2 * num_beams + len(self.eos_token_ids)))
        tokens = dict.fromkeys(token for token in wanted if token not in self.eos_token_ids)
        return tuple((token, -number * math.log(2)) for number, token in enumerate(tokens, start=1))


def certain(token_id: int, *, num_top: int) -> TokenLogprobs:
    return TokenLogprobs(token_id, 0.0, 1, ((token_id, 0.0),) if num_top else ())
