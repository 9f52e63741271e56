"""A training job: which model learns what from which data, how, and what is kept."""

from dataclasses import dataclass, field
from math import inf, isfinite

from headway.core.errors import InvalidArgumentError

OPTIMIZERS = ("adamw", "sgd", "momentum")
RATE_SCHEDULES = ("constant", "linear", "cosine")
PRECISIONS = ("float32", "bfloat16")
CPU, CUDA = "cpu", "cuda"
DEVICES = (CPU, CUDA)
AUTO, NEVER, ALWAYS = "auto", "never", "always"
PROFILING = (AUTO, NEVER, ALWAYS)
PLAN_METHODS = (
    "pp-dp", "inter-only", "data-parallel", "zero-2", "zero-3", "alpa", "graphpipe", "terapipe", "auto"
)  # fmt: skip
"""Of `headway plan train`, those by which a job's plan is searched."""
_MOST_SEED = 1 << 43
"""A million times as much and a step's number are a seed of torch's, which has 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSettings:
    """Attributes:
    name: one of `OPTIMIZERS`.
    rate: the learning rate, after the warm-up.
    schedule: of the rate, one of `RATE_SCHEDULES`; the last two fall to `least_rate` at the last step.
    warm_up: steps in which the rate rises from zero.
    clip: the gradient's norm is not above it; None for no bound.
    """

    name: str = "adamw"
    rate: float = 1e-3
    schedule: str = "constant"
    warm_up: int = 0
    least_rate: float = 0.0
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    momentum: float = 0.9
    clip: float | None = None

    def __post_init__(self) -> None:
        _among("optimizer.name", self.name, OPTIMIZERS)
        _among("optimizer.schedule", self.schedule, RATE_SCHEDULES)
        for name in ("rate", "warm_up", "least_rate", "weight_decay", "epsilon", "momentum", "clip"):
            value = getattr(self, name)
            if value is not None and not (value >= 0 and (isfinite(value) or name == "clip")):
                raise InvalidArgumentError(f"optimizer.{name} is {value}.", hint="Give 0 or more.", field=name)
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise InvalidArgumentError(
                    f"optimizer.{name} is {getattr(self, name)}.", hint="Give 0 or more, and less than 1.", field=name
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSettings:
    """One of these; examples of the first two are shuffled anew for each pass.

    Attributes:
        tensors: a safetensors file whose tensors have the names of the step's inputs, and examples along dim 0.
        tokens: a safetensors file with one tensor `tokens` of one dim: an example is a run of it, and its targets are
            the tokens that follow each.
        synthetic: random numbers, to try things.
    """

    tensors: str = ""
    tokens: str = ""
    synthetic: bool = False

    def __post_init__(self) -> None:
        if [bool(self.tensors), bool(self.tokens), self.synthetic].count(True) != 1:
            raise InvalidArgumentError(
                "data should be one of tensors, tokens and synthetic.", hint="Write data: {tokens: FILE}.", field="data"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """Attributes:
    every: steps between two; 0 for one at the end only.
    keep: how many of the last ones are kept.
    best: how many with the least validation loss are kept beside them; a step that is among these is saved too.
    background: they are written from a copy while training goes on.
    """

    every: int = 100
    keep: int = 2
    best: int = 0
    background: bool = False

    def __post_init__(self) -> None:
        if self.every < 0 or self.keep < 1 or self.best < 0:
            raise InvalidArgumentError(
                "checkpoint.every and best should be 0 or more, and keep 1 or more.", field="checkpoint"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationSettings:
    """Attributes:
    data: that nothing is learnt from; its fields are those of the job's.
    every: steps between two; the last step is validated too.
    batches: of the data, each as large as an iteration's; the same ones each time.
    """

    data: DataSettings
    every: int = 100
    batches: int = 1

    def __post_init__(self) -> None:
        for name in ("every", "batches"):
            if getattr(self, name) < 1:
                raise InvalidArgumentError(
                    f"validation.{name} is {getattr(self, name)}.", hint="Give 1 or more.", field=f"validation.{name}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """Attributes:
    model: `zoo:NAME`, `module:factory` or a checkpoint directory, whose weights training begins with.
    batch: examples of an iteration.
    workers: ranks, each a process.
    device: that they compute on, one of `DEVICES`. On a machine with fewer GPUs than ranks these share them.
    plan: a training plan's file, or 'auto' for one that is searched.
    method: by which a plan is searched, one of `PLAN_METHODS`: stages with copies, stages alone, copies alone, such
        with ZeRO's stage 2 or 3, stages whose ranks share operators, graphs of such, slices of tokens, or the best of
        these three.
    profile: whether operators are measured before a plan is searched, one of `PROFILING`: where it is possible, and the
        catalogue's figures count where it is not; never; or else there is no plan.
    micro_batches: of an iteration, where the plan is searched; None for as many as the search finds best.
    schedule: the order of forward and backward passes.
    precision: float32, or bfloat16 with float32 masters.
    zero: what the ranks of each stage share: 0 nothing, 1 the optimizer's state, 2 gradients too, 3 parameters too;
        None as the plan has it.
    seed: of weights, data and everything random in the model.
    deterministic: operators that could give other bits each time are refused; without it a run has the same bits again
        on the same machine as far as torch's kernels have.
    timeout_s: a rank that gives no answer for so long ends the run.
    restarts: how often the run begins again from its last checkpoint when a rank dies.
    trace_every: steps between two iterations that are kept as traces, from the second one on; 0 for none.
    metrics_port: of this machine, where Prometheus finds the run's figures; 0 for a free one, None for none.
    ray: address of the Ray cluster on whose machines the ranks run; empty for this machine.
    """

    model: str
    data: DataSettings
    batch: int
    steps: int
    seq: int | None = None
    workers: int = 2
    device: str = CPU
    plan: str = AUTO
    method: str = PLAN_METHODS[0]
    profile: str = AUTO
    micro_batches: int | None = None
    schedule: str = "1f1b"
    precision: str = "float32"
    zero: int | None = None
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    validation: ValidationSettings | None = None
    seed: int = 0
    deterministic: bool = False
    timeout_s: float = 60.0
    restarts: int = 2
    trace_every: int = 100
    metrics_port: int | None = None
    ray: str = ""

    def __post_init__(self) -> None:
        for name in ("batch", "steps", "workers", "micro_batches", "seq"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidArgumentError(f"{name} is {value}.", hint="Give 1 or more.", field=name)
        for name in ("trace_every", "restarts"):
            if getattr(self, name) < 0:
                raise InvalidArgumentError(f"{name} is {getattr(self, name)}.", hint="Give 0 or more.", field=name)
        if not 0 < self.timeout_s < inf:
            raise InvalidArgumentError(
                f"timeout_s is {self.timeout_s}.", hint="Give seconds, more than 0.", field="timeout_s"
            )
        if not abs(self.seed) < _MOST_SEED:
            raise InvalidArgumentError(
                f"seed is {self.seed}.", hint=f"Give a number between 0 and {_MOST_SEED - 1}.", field="seed"
            )
        if self.metrics_port is not None and not 0 <= self.metrics_port < 1 << 16:
            raise InvalidArgumentError(
                f"metrics_port is {self.metrics_port}.",
                hint="Give 0 for a free one, or below 65536.",
                field="metrics_port",
            )
        if self.zero not in (None, 0, 1, 2, 3):
            raise InvalidArgumentError(f"zero is {self.zero}.", hint="Give 0, 1, 2 or 3.", field="zero")
        _among("device", self.device, DEVICES)
        _among("precision", self.precision, PRECISIONS)
        _among("method", self.method, PLAN_METHODS)
        _among("profile", self.profile, PROFILING)
        if self.checkpoint.best and self.validation is None:
            raise InvalidArgumentError(
                f"checkpoint.best is {self.checkpoint.best}, and nothing is validated.",
                hint="Write validation: {data: {tokens: FILE}, every: 100}.",
                field="checkpoint.best",
            )


def _among(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidArgumentError(f"{name} is '{value}'.", hint=f"Known are {', '.join(known)}.", field=name)
