"""Answers again, alone and with room for everything: they must be the same."""

import time

from benchmarks.soak.round import Answer
from benchmarks.soak.traffic import Group
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.runner.model_runner import ModelRunner


class Replay:
    """An engine in which nothing is shared, guessed or preempted."""

    def __init__(self, config: EngineConfig, *, runner: ModelRunner) -> None:
        self._engine = Engine(config, runner=runner, clock=time.perf_counter)

    def check(self, group: Group, answers: dict[str, Answer]) -> None:
        """Compute each sequence by itself; raises AssertionError at the first token that differs."""
        for request in group.requests:
            self._engine.submit(request)
            tokens: list[int] = []
            hypotheses: Answer = ()
            while self._engine.has_work:
                for output in self._engine.step():
                    tokens += output.token_ids
                    hypotheses += tuple(each.token_ids for each in output.hypotheses)
            again = hypotheses or (tuple(tokens),)
            assert again == answers[request.request_id], f"{group.kind} request {request.request_id} differs when alone"
