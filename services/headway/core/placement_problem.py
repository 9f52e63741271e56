"""A placement problem: the models to place, the devices for them, and the requests to expect."""

import math
from dataclasses import dataclass

from headway.core.device_kind import DeviceKind, check_devices, even_nodes
from headway.core.engine_kind import EngineKind
from headway.core.held_memory import MemoryRule
from headway.core.line import QueuePolicy
from headway.core.node_span import NodeLink, over_nodes
from headway.core.placement import GroupShape, PlacedModel
from headway.core.slo import Slo
from headway.core.stage_profile import StageProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLengths:
    """The lengths of prompts or outputs: Gamma distributed, rounded, one token at least.

    Attributes:
        cv: the coefficient of variation; 0 where all are alike.
    """

    mean: float
    cv: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemModel:
    """A model under the name that clients ask for.

    Attributes:
        architecture: which profiles are its own (`StageProfile.model`); several models may share one.
        share: of generated requests, relative to the other models'.
        slo_s: of a whole answer, where a request has none of its own; None is the workload's scale, or no bound where
            the model generates.
        checkpoint: directory of what was captured; empty where the model is known by profiles alone.
        prompt, output: lengths of requests that do not say theirs, where the model generates; else None.
        ttft_s, tpot_s: of a model that generates. Where none of its objectives is given, both are the workload's scale.
        engine, engine_args: see `ModelDeployment`.
    """

    name: str
    architecture: str
    share: float = 1.0
    slo_s: float | None = None
    checkpoint: str = ""
    prompt: TokenLengths | None = None
    output: TokenLengths | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None
    engine: EngineKind = EngineKind.HEADWAY
    engine_args: str = ""

    @property
    def generates(self) -> bool:
        return self.prompt is not None and self.output is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingCluster:
    """A cluster of equal devices.

    Attributes:
        device: its name in the catalogue, with the engine that its workers have; see `core.device_name`.
        devices_per_node: the number of devices in one machine.
        memory_bytes: the memory of each device that the runtime leaves for models.
        nodes: devices of each machine where machines are uneven; () where all but the last have `devices_per_node`.
        across_nodes: what pipelines that fit no machine may use between machines; None: no group spans them.
    """

    device: str
    num_devices: int
    devices_per_node: int
    memory_bytes: int
    nodes: tuple[int, ...] = ()
    across_nodes: NodeLink | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """Attributes:
    name: as it was written.
    sha256: of its content, so that another file of that name is noticed.
    """

    name: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSource:
    """The source of a workload, from which the same requests can be made again, bit for bit.

    Attributes:
        spec: the workload that is searched, as `parse_workload_spec` takes it.
        held_out: another one that the result is checked on; empty: of a file its second half, of what is generated as
            much again.
        duration_s: the duration of each workload; None for the whole file.
        slo_scale: objective of a model that has none, over its latency alone on as few devices as it runs on; of one
            that generates, of its first token as of the others, with a prompt of the mean length.
        files: the files that the specs name.
    """

    spec: str
    held_out: str = ""
    duration_s: float | None = None
    seed: int = 0
    slo_scale: float = 5.0
    files: tuple[TraceFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementProblem:
    """Attributes:
    profiles: of every architecture, on the clusters' devices; those of the first come first.
    rules: how requests are dispatched and memory is counted: 'serving', as router and workers do, or
        'artifact', as AlpaServe's artifact.
    other_clusters: devices of other kinds, each of one.
    answer_overhead_s: that an answer takes from the client to the group and back, besides the model, as the stack will
        count it; the artifact's rules have their own.
    queue_policy: who is next in a group, `FCFS` or `LEAST_SLACK`, as the stack will have it.
    """

    models: tuple[ProblemModel, ...]
    profiles: tuple[StageProfile, ...]
    cluster: ServingCluster
    workload: WorkloadSource
    rules: str = "serving"
    other_clusters: tuple[ServingCluster, ...] = ()
    answer_overhead_s: float = 0.0
    queue_policy: QueuePolicy = QueuePolicy.FCFS

    @property
    def clusters(self) -> tuple[ServingCluster, ...]:
        """One for each kind of device."""
        return (self.cluster, *self.other_clusters)

    @property
    def kinds(self) -> tuple[DeviceKind, ...]:
        """InvalidArgumentError where one has no devices, or no memory."""
        return tuple(_kind(each, device=each.device if self.other_clusters else "") for each in self.clusters)

    @property
    def placed_models(self) -> tuple[PlacedModel, ...]:
        """Returns the models, each with the profiles of its architecture."""
        return tuple(
            PlacedModel(
                name=model.name,
                profiles=self.profiles_of(model),
                memory_rule=self.memory_rule,
                slo=self.token_slo(model),
            )
            for model in self.models
        )

    @property
    def memory_rule(self) -> MemoryRule:
        return MemoryRule.WEIGHTS if self.rules == "artifact" else MemoryRule.RESERVED

    def profiles_of(self, model: ProblemModel) -> tuple[StageProfile, ...]:
        """Returns the profiles of a model's architecture, each as its group would lie on the machines."""
        return tuple(self._laid_out(profile) for profile in self.profiles if profile.model == model.architecture)

    def span_of(self, shape: GroupShape) -> tuple[int, ...]:
        """Devices that a group has in each of its machines; () where they cannot hold it."""
        return _kind(self.cluster_of(shape), device=shape.device).span(shape.pp, shape.op)

    def cluster_of(self, shape: GroupShape) -> ServingCluster:
        """Returns the cluster that a group of this shape is on."""
        return next(each for each in self.clusters if shape.device in ("", each.device))

    def crossing_s(self, model: ProblemModel, shape: GroupShape) -> float:
        """Returns the seconds that links between machines add to one pass of a model through a group that it has a
        profile for.
        """
        profile = next(
            profile
            for profile in self.profiles
            if (profile.model, profile.pp, profile.op) == (model.architecture, shape.pp, shape.op)
            and shape.device in ("", profile.hardware)
        )
        return self._laid_out(profile).latency_s - profile.latency_s

    def latency_s(self, model: ProblemModel) -> float:
        """Alone on as few devices as it has a profile for: what its objective is scaled from."""
        return self._on_fewest(model).latency_s

    def alone_s(self, model: ProblemModel) -> tuple[float, float]:
        """TTFT and TPOT of a model that generates, alone on as few devices as it has a profile for."""
        generation = self._on_fewest(model).generation
        assert generation is not None, f"{model.name} does not generate"
        assert model.prompt is not None, f"{model.name} does not generate"
        return generation.alone_s(model.prompt.mean)

    def slo_s(self, model: ProblemModel) -> float:
        """Returns the objective of whole answers, where requests have none of their own; infinite for none."""
        if model.slo_s is not None:
            return model.slo_s
        return math.inf if model.generates else self.workload.slo_scale * self.latency_s(model)

    def token_slo(self, model: ProblemModel) -> Slo:
        """Returns the objectives of first tokens and of the time between tokens; empty where the model does not
        generate.
        """
        if not model.generates:
            return Slo()
        if (model.ttft_s, model.tpot_s, model.slo_s) != (None, None, None):
            return Slo(ttft_s=model.ttft_s, tpot_s=model.tpot_s)
        ttft_s, tpot_s = (self.workload.slo_scale * alone_s for alone_s in self.alone_s(model))
        return Slo(ttft_s=ttft_s, tpot_s=tpot_s)

    def slo(self, model: ProblemModel) -> Slo:
        """Returns all objectives of a model."""
        slo_s = self.slo_s(model)
        return Slo(e2e_s=slo_s if slo_s < math.inf else None).over(self.token_slo(model))

    def _laid_out(self, profile: StageProfile) -> StageProfile:
        for cluster in self.clusters:
            if cluster.device == profile.hardware and cluster.across_nodes is not None:
                return over_nodes(profile, cluster.across_nodes, node=_kind(cluster, device="").largest_node)
        return profile

    def _on_fewest(self, model: ProblemModel) -> StageProfile:
        return min(self.profiles_of(model), key=lambda profile: (profile.pp * profile.op, profile.pp))


def planned_policy(policy: QueuePolicy, *, generates: bool) -> QueuePolicy:
    """Returns the policy that a problem has for a stack's policy: first come, first served where models generate, since
    only that is simulated, and for priorities, which a workload does not have.
    """
    return policy if policy is QueuePolicy.LEAST_SLACK and not generates else QueuePolicy.FCFS


def _kind(cluster: ServingCluster, *, device: str) -> DeviceKind:
    check_devices(
        num_devices=cluster.num_devices, memory_bytes=cluster.memory_bytes, devices_per_node=cluster.devices_per_node
    )
    nodes = cluster.nodes or even_nodes(cluster.num_devices, cluster.devices_per_node)
    return DeviceKind(
        device=device,
        nodes=nodes,
        memory_bytes=cluster.memory_bytes,
        is_joined=cluster.across_nodes is not None,
    )
