"""The worker's own program on an emulated device, in which a step with `DEADLY_ID` in it never ends."""

import time

from headway.engine.batch import StepBatch, StepResult
from headway.rpc.config import parse_config
from headway.rpc.host import run
from headway.runner.emulated.model_runner import EmulatedModelRunner
from headway.worker import emulated_loading
from headway.worker.__main__ import main
from headway.worker.config import WorkerConfig
from tests.gateway.scripted_worker import DEADLY_ID


class StuckRunner(EmulatedModelRunner):
    _is_stuck = False

    def start(self, batch: StepBatch) -> None:
        self._is_stuck |= any(DEADLY_ID in scheduled.sequence.token_ids for scheduled in batch.sequences)
        super().start(batch)

    def finish(self) -> StepResult:
        while self._is_stuck:
            time.sleep(0.01)
        return super().finish()


if __name__ == "__main__":
    emulated_loading.EmulatedModelRunner = StuckRunner  # type: ignore[misc]
    run(main(parse_config(WorkerConfig, prog="stuck-worker")))
