"""A pool of cells that is declared as a resource."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headway.controller.kubernetes.api import GROUP, ResourceKind
from headway.controller.kubernetes.scaling import ScalingPolicy
from headway.core.errors import HeadwayError, InvalidArgumentError

WORKER_POOL = ResourceKind(kind="WorkerPool", plural="workerpools")
POOL_LABEL = f"{GROUP}/pool"
"""The label of a cell that names its pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolResource:
    """A WorkerPool, as the API server told of it; `version` is of the object, status included."""

    name: str
    uid: str
    generation: int
    version: str
    spec: Mapping[str, Any]
    status: Mapping[str, Any]

    @classmethod
    def of(cls, resource: Mapping[str, Any]) -> "PoolResource":
        metadata = resource["metadata"]
        return cls(
            name=metadata["name"],
            uid=metadata["uid"],
            generation=metadata["generation"],
            version=metadata["resourceVersion"],
            spec=resource.get("spec", {}),
            status=resource.get("status", {}),
        )

    @property
    def num_gpus(self) -> int:
        """Of each cell."""
        return int(self.spec.get("gpusPerCell", 0))

    @property
    def gpus_per_worker(self) -> int:
        return int(self.spec.get("gpusPerWorker", 1))

    @property
    def workers_per_cell(self) -> int:
        return self.num_gpus // self.gpus_per_worker or int(self.spec.get("workersPerCell", 1))

    @property
    def is_emulated(self) -> bool:
        return bool(self.spec.get("emulate"))

    @property
    def replicas(self) -> int:
        """How many cells it says that there are to be."""
        return int(self.spec.get("replicas", 1))

    @property
    def scaling(self) -> ScalingPolicy | None:
        """How many there are to be is decided by what is asked of the models; None where it says so itself."""
        if (spec := self.spec.get("scaling")) is None:
            return None
        usual = ScalingPolicy(min_cells=int(spec.get("min", 1)), max_cells=int(spec["max"]))
        return replace(
            usual,
            target_attainment=float(spec.get("targetAttainment", usual.target_attainment)),
            target_load=float(spec.get("targetLoad", usual.target_load)),
            window_s=float(spec.get("windowSeconds", usual.window_s)),
            cooldown_s=float(spec.get("cooldownSeconds", usual.cooldown_s)),
            is_dry_run=bool(spec.get("dryRun", False)),
        )

    @property
    def selector(self) -> str:
        """Of its cells' labels, as text."""
        return f"{POOL_LABEL}={self.name}"

    @property
    def owner_reference(self) -> dict[str, Any]:
        """What objects say that it has made: they go with it."""
        return {
            "apiVersion": WORKER_POOL.api_version,
            "kind": WORKER_POOL.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": False,
        }

    def fault(self, *, is_emulated: bool) -> HeadwayError | None:
        """What is wrong with it in this release; the definition has refused what is wrong in any.

        Args:
            is_emulated: whether the release's devices are.
        """
        if self.is_emulated == is_emulated:
            return None
        told = "emulates a device, and the release serves with real ones" if self.is_emulated else "emulates no device"
        return InvalidArgumentError(
            f"The pool {told}{'' if self.is_emulated else ', as the release does'}.",
            hint="Either all pools emulate devices or none does.",
            field="spec.emulate",
        )
