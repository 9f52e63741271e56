"""Training jobs in files."""

from dataclasses import replace
from pathlib import Path

import yaml

from headway.checkpoint.model_directory import read_spec
from headway.checkpoint.names import check_trainable
from headway.cli.placement.files import read_bytes
from headway.core.codec import from_document
from headway.core.errors import HeadwayError, InvalidArgumentError, NotFoundError
from headway.core.execution.orders import METHODS
from headway.core.training_job import DataSettings, TrainingJob


def read_training_job(path: Path) -> TrainingJob:
    """Reads a job, the paths of its data and of a model's directory made absolute, as ranks may run elsewhere.

    InvalidArgumentError names the file and the field that is at fault, NotFoundError a file of data that is missing,
    and FailedPreconditionError says why a model is not trained from its directory.
    """
    try:
        document = yaml.safe_load(read_bytes(path))
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date of month 13, lists a thousand deep
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
    job = _with_absolute_paths(job)
    directory = Path(job.model)
    if not directory.is_dir():
        return job
    check_trainable(read_spec(directory), seq=job.seq)
    return replace(job, model=str(directory.resolve()))


def _with_absolute_paths(job: TrainingJob) -> TrainingJob:
    """With the files of its data as they are found from anywhere."""
    validation = job.validation
    if validation is not None:
        validation = replace(validation, data=_found_anywhere(validation.data, path="validation.data"))
    return replace(job, data=_found_anywhere(job.data, path="data"), validation=validation)


def _found_anywhere(data: DataSettings, *, path: str) -> DataSettings:
    tensors, tokens = (str(Path(file).resolve()) if file else "" for file in (data.tensors, data.tokens))
    for name, file in (("tensors", tensors), ("tokens", tokens)):
        if file and not Path(file).is_file():
            raise NotFoundError(
                f"There is no file {file}.", hint=f"{path}.{name} names a safetensors file.", field=path
            )
    return replace(data, tensors=tensors, tokens=tokens)
