"""Beam search (dissertation 5.4.4), with the rules of transformers 5: which beams live on, and which have ended.

In every step each live beam offers its best continuations. The best of all of them are ranked; of those that end
their beam, the ones among the first `width` become hypotheses, and the best `width` of the others live on.
"""

import math
from collections.abc import Sequence

from headway.core.request import BeamSearch, EarlyStopping, FinishReason, Hypothesis

Candidates = Sequence[tuple[int, float]]
"""(token id, natural-log probability) of the best continuations of one beam."""


class BeamState:
    """One beam search between two steps. It starts with one live beam, which has no output.

    Attributes:
        width: live beams at most, and hypotheses kept.
        is_done: nothing can be gained any more.
    """

    def __init__(self, search: BeamSearch, *, stop_token_ids: frozenset[int], min_tokens: int, max_tokens: int) -> None:
        """
        Args:
            stop_token_ids: end a beam that has more than `min_tokens`.
            max_tokens: output tokens that end every beam.
        """
        self.width = search.width
        self.is_done = False
        self._search = search
        self._stop_token_ids = stop_token_ids
        self._min_tokens = min_tokens
        self._max_tokens = max_tokens
        # Even if every live beam's best continuations are all the stop tokens, `width` others are left.
        self._num_ranked = max(2, 1 + len(stop_token_ids)) * search.width
        self._num_tokens = 0
        self._scores = [0.0]  # log probability of each live beam's output
        self._hypotheses: list[Hypothesis] = []  # best first
        self._candidates: dict[int, Candidates] = {}

    @property
    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """The finished hypotheses, best first; at most as many as the request asked for."""
        return tuple(self._hypotheses[: self._search.num_hypotheses])

    def offer(self, beam: int, candidates: Candidates) -> bool:
        """Takes the continuations of one live beam; True when those of all are there."""
        self._candidates[beam] = candidates
        return len(self._candidates) == len(self._scores)

    def forget_candidates(self) -> None:
        """The live beams will be computed again, and offer theirs again."""
        self._candidates.clear()

    def advance(self, outputs: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
        """Takes the step for which all candidates are there.

        Args:
            outputs: tokens of each live beam so far.

        Returns:
            The beams that live on, best first: (index of the parent, new token). They may be none when it is done.
        """
        self._num_tokens += 1
        survivors: list[tuple[int, int]] = []
        scores: list[float] = []
        for rank, (score, parent, token_id) in enumerate(self._ranked()):
            reason = self._end_reason(token_id)
            if reason is None:
                if len(survivors) < self.width:
                    survivors.append((parent, token_id))
                    scores.append(score)
            elif rank < self.width:
                penalised = score / math.pow(self._num_tokens, self._search.length_penalty)
                self._hypotheses.append(Hypothesis((*outputs[parent], token_id), penalised, reason))
        self._hypotheses.sort(key=lambda hypothesis: -hypothesis.score)
        del self._hypotheses[self.width :]
        self._candidates.clear()
        self._scores = scores
        self.is_done = not scores or self._cannot_improve(scores[0])
        return survivors

    def _ranked(self) -> list[tuple[float, int, int]]:
        """The best continuations of all beams: (log probability of the output, parent, token), best first."""
        ranked = [
            (self._scores[beam] + logprob, beam, token_id)
            for beam, candidates in self._candidates.items()
            for token_id, logprob in candidates
            if logprob > float("-inf")
        ]
        ranked.sort(key=lambda entry: (-entry[0], entry[1], entry[2]))
        return ranked[: self._num_ranked]

    def _end_reason(self, token_id: int) -> FinishReason | None:
        if token_id in self._stop_token_ids and self._num_tokens > self._min_tokens:
            return FinishReason.STOP
        return FinishReason.LENGTH if self._num_tokens >= self._max_tokens else None

    def _cannot_improve(self, best_score: float) -> bool:
        """Whether the best live beam, as its score stands, will not displace the worst of `width` hypotheses.

        A longer output may score better, if the length penalty favours it: only `never` allows for that.
        """
        if len(self._hypotheses) < self.width:
            return False
        if self._search.early_stopping is EarlyStopping.FIRST:
            return True
        penalty = self._search.length_penalty
        grows = self._search.early_stopping is EarlyStopping.NEVER and penalty > 0
        length = self._max_tokens if grows else self._num_tokens
        return best_score / math.pow(length, penalty) <= self._hypotheses[-1].score
