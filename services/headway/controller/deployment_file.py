"""A file that says what to serve: the deployment of a cluster, where nobody types `headway up`."""

import hashlib
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from headway.checkpoint.model_directory import read_checkpoint
from headway.core.answer_parser import check_parsers
from headway.core.deployment import Deployment, WorkerOptions
from headway.core.engine_args import check_engine
from headway.core.engine_kind import EngineKind, Feature
from headway.core.engine_limits import check_model
from headway.core.errors import InvalidArgumentError
from headway.core.line import QueuePolicy
from headway.core.model import ModelSpec
from headway.core.parallel_config import SINGLE, ParallelConfig
from headway.core.plan.serving import EngineLimits, ModelDeployment
from headway.core.served_backend import check_served_backend, own_backend
from headway.core.slo import Slo


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class SloDocument(_Document):
    """Objectives of the requests for a model, in milliseconds."""

    ttft_ms: float | None = Field(default=None, gt=0)
    tpot_ms: float | None = Field(default=None, gt=0)
    e2e_ms: float | None = Field(default=None, gt=0)

    @property
    def slo(self) -> Slo:
        return Slo(ttft_s=_seconds(self.ttft_ms), tpot_s=_seconds(self.tpot_ms), e2e_s=_seconds(self.e2e_ms))


class ReplicasDocument(_Document):
    """How many groups serve a model; as many as there are where nothing is said. With `min: 0` it is unloaded while
    nobody asks for it."""

    min: int = Field(default=1, ge=0)
    max: int | None = Field(default=None, ge=1)
    idle_seconds: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.max is not None and self.min > self.max:
            raise ValueError(f"min, {self.min}, is above max, {self.max}")
        if self.idle_seconds is not None and self.min:
            raise ValueError(f"idle_seconds says when a model with min: 0 is unloaded, and min is {self.min}")
        return self


class ParallelismDocument(_Document):
    """How the workers of each group share a model."""

    tp: int = Field(default=1, ge=1)
    pp: int = Field(default=1, ge=1)
    cp: int = Field(default=1, ge=1)

    @property
    def parallel(self) -> ParallelConfig:
        return ParallelConfig(tp=self.tp, pp=self.pp, cp=self.cp)


class RolesDocument(_Document):
    """How many workers compute a model's prompts, and how many go on with its sequences."""

    prefill: int = Field(ge=1)
    decode: int = Field(ge=1)


class ModelDocument(_Document):
    """A model: the name that clients ask for, and the directory that every gateway and worker has it in."""

    name: str = Field(min_length=1)
    path: Path
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    quantization: Literal["int8"] | None = None
    max_model_len: int | None = Field(default=None, ge=1)
    generation_config: str = ""
    backend: str = ""
    slo: SloDocument = SloDocument()
    engine: EngineKind = EngineKind.HEADWAY
    engine_args: str = ""
    tool_parser: str = ""
    reasoning_parser: str = ""
    replicas: ReplicasDocument = ReplicasDocument()
    parallelism: ParallelismDocument | None = None
    pools: tuple[str, ...] = ()
    roles: RolesDocument | None = None

    @model_validator(mode="after")
    def _has_one_shape(self) -> Self:
        is_shared = self.parallelism is not None and self.parallelism.parallel != SINGLE
        if self.roles is not None and is_shared:
            raise ValueError("roles and parallelism contradict each other: blocks move between lone workers only")
        if self.roles is not None and "replicas" in self.model_fields_set:
            raise ValueError("roles and replicas both say how many workers serve it: leave one out")
        if self.engine is not EngineKind.HEADWAY and (is_shared or self.roles is not None):
            raise ValueError(
                f"{self.engine} serves on lone workers that do everything: leave parallelism and roles out"
            )
        if self.engine is EngineKind.VLLM_SERVER and self.replicas.min == 0:
            raise ValueError(f"{self.engine} has its model loaded all the time: replicas.min is 1 at least")
        return self


class LimitsDocument(_Document):
    """Limits of every engine; what is left out is the planner's choice."""

    block_size: int | None = Field(default=None, ge=1)
    max_num_seqs: int | None = Field(default=None, ge=1)
    max_num_batched_tokens: int | None = Field(default=None, ge=1)
    max_num_prefill_tokens: int | None = Field(default=None, ge=1)
    kv_cache_bytes: int | None = Field(default=None, ge=1)
    host_cache_bytes: int | None = Field(default=None, ge=0)
    enable_prefix_cache: bool | None = None
    preemption: Literal["auto", "recompute", "swap"] | None = None
    num_draft_tokens: int | None = Field(default=None, ge=0)
    tp: int | None = Field(default=None, ge=1)
    pp: int | None = Field(default=None, ge=1)
    cp: int | None = Field(default=None, ge=1)
    cp_ffn: Literal["data", "tensor"] | None = None
    stage_layers: tuple[int, ...] = ()
    prefill_workers: int | None = Field(default=None, ge=1)
    decode_workers: int | None = Field(default=None, ge=1)


class DeploymentDocument(_Document):
    """What is served, on as many workers as others start. Without models those count that are declared otherwise."""

    models: list[ModelDocument] = []
    workers: int = Field(ge=1)
    is_emulated: bool = False
    """Whether the workers compute nothing; the models need no weights then, and are not measured."""
    limits: LimitsDocument = LimitsDocument()
    profile: bool = True
    queue_policy: QueuePolicy = QueuePolicy.LEAST_SLACK
    answer_overhead_ms: float = Field(default=0.0, ge=0)
    log_level: str = "info"


def read_deployment_file(path: Path, *, has_models: bool = True) -> Deployment:
    """The deployment that a YAML file describes, with the fingerprint of the file.

    Args:
        has_models: whether it has to name a model; False where models are declared otherwise.

    Raises:
        InvalidArgumentError: the file cannot be read, has an unknown or a wrong field, or a model twice.
        NotFoundError: a model's directory, or a file in it, is missing.
    """
    try:
        text = path.read_text()
        document = DeploymentDocument.model_validate(yaml.safe_load(text))
    except OSError as error:
        raise InvalidArgumentError(f"{path} cannot be read: {error.strerror}.", field="deployment") from None
    except yaml.YAMLError as error:
        raise InvalidArgumentError(f"{path} is not YAML: {error}", field="deployment") from None
    except ValidationError as error:
        told = f"{path}: {faults_of(error)}"
        raise InvalidArgumentError(told, hint="Correct the file.", field="deployment") from None
    except (ValueError, RecursionError) as error:  # no UTF-8, a date of month 13, lists a thousand deep
        raise InvalidArgumentError(f"{path} is not YAML: {error}", field="deployment") from None
    if has_models and not document.models:
        raise InvalidArgumentError(f"{path} names no model.", hint="Name one.", field="deployment.models")
    names = [model.name for model in document.models]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidArgumentError(f"{path}: two models are called {repeated[0]}.", field="deployment.models")
    return Deployment(
        models=tuple(read_model(model, is_emulated=document.is_emulated) for model in document.models),
        workers=WorkerOptions(count=document.workers, num_threads=1, memory_bytes=1, cores=()),
        limits=EngineLimits(**document.limits.model_dump()),
        profile=document.profile and not document.is_emulated,
        log_level=document.log_level,
        queue_policy=document.queue_policy,
        answer_overhead_s=document.answer_overhead_ms / 1e3,
        is_emulated=document.is_emulated,
        source=hashlib.sha256(text.encode()).hexdigest()[:16],
    )


def read_model(document: ModelDocument, *, is_emulated: bool) -> ModelDeployment:
    """The model with what its checkpoint says.

    Args:
        is_emulated: whether it needs no weights.

    Raises:
        InvalidArgumentError: it cannot be served as the document says.
        NotFoundError: its directory, or a file in it, is missing.
    """
    spec = read_checkpoint(
        document.path,
        dtype=document.dtype,
        quantization=document.quantization,
        has_weights=not is_emulated and document.engine is not EngineKind.VLLM_SERVER,
        generation_config=document.generation_config,
        engine=document.engine,
    ).spec
    if document.backend:
        check_served_backend(document.backend, field="deployment.models.backend")
    if document.max_model_len is not None and document.max_model_len > spec.max_position:
        raise InvalidArgumentError(
            f"{document.name} takes sequences of {spec.max_position} tokens at most, not {document.max_model_len}.",
            field="deployment.models.max_model_len",
        )
    _check_engine(document, spec, is_emulated=is_emulated)
    check_parsers(
        document.tool_parser,
        document.reasoning_parser,
        tool_field="deployment.models.tool_parser",
        reasoning_field="deployment.models.reasoning_parser",
    )
    return ModelDeployment(
        name=document.name,
        directory=str(document.path),
        spec=spec,
        max_model_len=document.max_model_len,
        slo=document.slo.slo,
        generation_config=document.generation_config,
        engine=document.engine,
        engine_args=document.engine_args,
        tool_parser=document.tool_parser,
        reasoning_parser=document.reasoning_parser,
        backend=own_backend(document.backend),
        min_replicas=document.replicas.min if document.replicas.min != 1 else None,
        max_replicas=document.replicas.max,
        idle_s=document.replicas.idle_seconds,
        parallel=None if document.parallelism is None else document.parallelism.parallel,
        pools=document.pools,
        prefill_workers=None if document.roles is None else document.roles.prefill,
        decode_workers=None if document.roles is None else document.roles.decode,
    )


def _check_engine(document: ModelDocument, spec: ModelSpec, *, is_emulated: bool) -> None:
    """InvalidArgumentError where the model's engine cannot compute it so."""
    check_engine(document.engine, document.engine_args)
    check_model(document.name, spec, document.engine)
    if document.engine is not EngineKind.HEADWAY and (is_emulated or document.quantization):
        what = "emulation" if is_emulated else Feature.INT8
        raise InvalidArgumentError(
            f"{document.name} is to run on {document.engine}, which lacks {what}.",
            hint="Serve it with engine: headway.",
            field="deployment.models.engine",
        )


def faults_of(error: ValidationError) -> str:
    """What is wrong with a document, each fault with its field."""

    def told(fault: Any) -> str:
        return f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"

    return "; ".join(told(fault) for fault in error.errors())


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3
