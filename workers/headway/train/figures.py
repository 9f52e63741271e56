"""What a run tells of its steps to those who watch it: Prometheus, which asks, and TensorBoard's files."""

import json
from pathlib import Path

from headway.core.errors import FailedPreconditionError
from headway.core.training_job import TrainingJob
from headway.core.training_run import TENSORBOARD_DIRECTORY, StepReport, scrape_file
from headway.observe import metrics
from headway.observe.exposition import serve_metrics
from headway.train.events import EventFile

_HOST = "127.0.0.1"


class RunFigures:
    """A run's figures, from its process.

    Args:
        directory: of the run.
    """

    def __init__(self, directory: Path, job: TrainingJob) -> None:
        self._job, self._run = job, directory.name
        self._events = EventFile(directory / TENSORBOARD_DIRECTORY)
        self._scrape = scrape_file(directory)
        if job.metrics_port is not None:
            self._serve(job.metrics_port)

    def tell(self, report: StepReport) -> None:
        """Takes a step's figures."""
        labels = (self._run, self._job.model)
        gauges = {
            metrics.TRAIN_STEP: report.step,
            metrics.TRAIN_LOSS: report.loss,
            metrics.TRAIN_GRAD_NORM: report.grad_norm,
            metrics.TRAIN_STEP_SECONDS: report.seconds,
            metrics.TRAIN_PREDICTED_SECONDS: report.predicted_s,
            metrics.TRAIN_MFU: report.mfu,
            metrics.TRAIN_BUBBLE: report.bubble,
            metrics.TRAIN_PREDICTED_BUBBLE: report.predicted_bubble,
        }
        if report.validation_loss is not None:
            gauges[metrics.TRAIN_VALIDATION_LOSS] = report.validation_loss
        for gauge, value in gauges.items():
            gauge.labels(*labels).set(value)
        metrics.TRAIN_EXAMPLES.labels(*labels).inc(self._job.batch)
        metrics.TRAIN_TOKENS.labels(*labels).inc(report.tokens_s * report.seconds)
        metrics.TRAIN_CHECKPOINTS.labels(*labels).inc(report.is_saved)
        self._events.add(report.step, scalars(report, batch=self._job.batch))

    def tell_restart(self) -> None:
        """Takes that the ranks begin again."""
        metrics.TRAIN_RESTARTS.labels(self._run, self._job.model).inc()

    def close(self) -> None:
        """Leaves nothing for Prometheus to ask."""
        self._events.close()
        self._scrape.unlink(missing_ok=True)

    def _serve(self, port: int) -> None:
        """Names the address in a file beside the run, in the form of Prometheus's file_sd_configs."""
        try:
            server = serve_metrics(_HOST, port)
        except OSError as error:
            raise FailedPreconditionError(
                f"Port {port} cannot be listened on: {error}.", hint="Take another one, or 0.", field="metrics_port"
            ) from error
        target = {"targets": [f"{_HOST}:{server.server_port}"], "labels": {"kind": "training", "process": self._run}}
        self._scrape.write_text(json.dumps([target]))


def scalars(report: StepReport, *, batch: int) -> dict[str, float]:
    """A step's figures by the names that TensorBoard shows, which come in groups."""
    found = {
        "loss/train": report.loss,
        "loss/gradient": report.grad_norm,
        "speed/examples_s": batch / report.seconds,
        "speed/step_s": report.seconds,
        "speed/predicted_s": report.predicted_s,
        "speed/bubble": report.bubble,
    }
    if report.tokens_s:
        found["speed/tokens_s"] = report.tokens_s
    if report.mfu:
        found["speed/mfu"] = report.mfu
    if report.validation_loss is not None:
        found["loss/validation"] = report.validation_loss
    return found
