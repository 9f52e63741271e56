"""One sequence of a job on the way from tokens to text."""

from dataclasses import replace

from headway.core.request import FinishReason, GenerationRequest, SequenceOutput
from headway.gateway.job import Delta
from headway.gateway.text.detokenizer import Detokenizer
from headway.gateway.text.stop import StopScanner


class Decoding:
    """Turns a worker's outputs into deltas, and knows how to go on at another worker.

    Attributes:
        index: in the job.
        has_begun: whether a token has come, so that further ones may be pushed.
    """

    __slots__ = (
        "_detokenizer",
        "_has_prompt_logprobs",
        "_includes_stop",
        "_is_silent",
        "_logprob_sum",
        "_request",
        "_scanner",
        "_token_ids",
        "_with_offsets",
        "has_begun",
        "index",
    )

    def __init__(
        self,
        index: int,
        *,
        request: GenerationRequest,
        detokenizer: Detokenizer,
        stops: tuple[str, ...],
        includes_stop: bool = False,
        is_silent: bool = False,
    ) -> None:
        """
        Args:
            includes_stop: whether the text ends with what stopped it, a string or a token.
            is_silent: drops the output: only the prompt's log probabilities are wanted.
        """
        self.index = index
        self.has_begun = False
        self._request = request
        self._detokenizer = detokenizer
        self._scanner = StopScanner(stops, includes_stop=includes_stop) if stops else None
        self._includes_stop = includes_stop
        self._with_offsets = request.sampling.num_logprobs is not None
        self._is_silent = is_silent
        self._has_prompt_logprobs = False
        self._token_ids: list[int] = []
        self._logprob_sum = 0.0

    @property
    def sequence_id(self) -> str:
        return self._request.request_id

    @property
    def request(self) -> GenerationRequest:
        """The request to submit: the client's prompt, followed by the tokens that were generated already."""
        request = self._request
        if self._has_prompt_logprobs:
            request = replace(request, sampling=replace(request.sampling, num_prompt_logprobs=None))
        return replace(request, output_token_ids=tuple(self._token_ids)) if self._token_ids else request

    def accept(self, output: SequenceOutput) -> list[Delta]:
        """The one delta that an output makes. Its finish reason may be set before the worker's: at a stop string."""
        self._has_prompt_logprobs = self._has_prompt_logprobs or bool(output.prompt_logprobs)
        # A worker that takes over reports what it found in its cache of prompt and output: that is not the client's.
        num_cached_tokens = 0 if self._token_ids else output.num_cached_tokens
        if self._is_silent:
            silent = Delta(
                index=self.index,
                prompt_logprobs=output.prompt_logprobs,
                finish_reason=output.finish_reason,
                num_cached_tokens=num_cached_tokens,
            )
            return [silent]
        text, offsets, num_early = self._detokenize(output)
        reason = output.finish_reason
        if self._scanner is not None:
            text, reason = self._scan(text, num_early, self._scanner, reason)
        delta = Delta(
            index=self.index,
            text=text,
            token_ids=output.token_ids,
            logprobs=output.logprobs[: len(offsets)] if output.logprobs else (),
            text_offsets=tuple(offsets),
            prompt_logprobs=output.prompt_logprobs,
            finish_reason=reason,
            num_cached_tokens=num_cached_tokens,
            score=None if reason is None else self._mean_logprob,
        )
        return [delta]

    def push(self, token_id: int) -> str:
        """Accepts an output that is one token and nothing else, where there are no stop strings; returns the new text.
        See `accept`.
        """
        self._token_ids.append(token_id)
        return self._detokenizer.push(token_id)

    @property
    def _mean_logprob(self) -> float | None:
        return self._logprob_sum / len(self._token_ids) if self._with_offsets and self._token_ids else None

    def _detokenize(self, output: SequenceOutput) -> tuple[str, list[int], int]:
        """New text; the offset of each token that stands for text: the one that ended the sequence seldom does; and how
        many characters came with the first `min_tokens` tokens, which no stop string may end.
        """
        detokenizer, token_ids = self._detokenizer, output.token_ids
        num_early_tokens = self._request.sampling.min_tokens - len(self._token_ids)
        self._token_ids.extend(token_ids)
        self.has_begun = bool(self._token_ids)
        if output.logprobs:
            self._logprob_sum += sum(entry.logprob for entry in output.logprobs)
        if output.stop_token_id is not None and token_ids and not self._includes_stop:
            token_ids = token_ids[:-1]
        text, num_early = "", 0
        offsets: list[int] = []
        for number, token_id in enumerate(token_ids, start=1):
            if self._with_offsets:
                offsets.append(detokenizer.num_chars)
            text += detokenizer.push(token_id)
            if number <= num_early_tokens:
                num_early = len(text)
        if output.finish_reason is not None:
            text += detokenizer.flush()
        if len(output.token_ids) <= num_early_tokens:
            num_early = len(text)
        return text, offsets, num_early

    def _scan(
        self, text: str, num_early: int, scanner: StopScanner, reason: FinishReason | None
    ) -> tuple[str, FinishReason | None]:
        text, found = scanner.push(text, num_exempt=num_early)
        if found:
            return text, FinishReason.STOP
        if reason is not None:
            text += scanner.flush()
        return text, reason
