"""Training jobs in files."""

from dataclasses import replace
from pathlib import Path

import yaml

from headway.cli.placement.files import read_bytes
from headway.core.checkpoint_names import check_trainable
from headway.core.codec import from_document
from headway.core.errors import HeadwayError, InvalidArgumentError
from headway.core.execution.orders import METHODS
from headway.core.training_job import TrainingJob
from headway.store.checkpoint import read_spec


def read_training_job(path: Path) -> TrainingJob:
    """Reads a job, the path of a model's directory made absolute; InvalidArgumentError names the file and the field
    that is at fault, and FailedPreconditionError says why a model is not trained from its directory.
    """
    try:
        document = yaml.safe_load(read_bytes(path))
    except yaml.YAMLError as error:
        raise InvalidArgumentError(f"{path} is no YAML: {error}.", field="job") from error
    try:
        job = from_document(TrainingJob, document, path="job")
    except HeadwayError as error:
        hint = error.hint or "A job has model, data, batch and steps at least."
        raise InvalidArgumentError(f"{path}: {error.message}", hint=hint, field=error.field) from error
    if job.schedule not in METHODS:
        raise InvalidArgumentError(
            f"{path}: schedule is '{job.schedule}'.", hint=f"Known are {', '.join(METHODS)}.", field="schedule"
        )
    directory = Path(job.model)
    if not directory.is_dir():
        return job
    check_trainable(read_spec(directory), seq=job.seq)
    return replace(job, model=str(directory.resolve()))
