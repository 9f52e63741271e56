"""The loop that serves declared models, a step at a time."""

from pathlib import Path
from typing import Any

from headway.controller.kubernetes.fetch_job import FetchTemplate
from headway.controller.kubernetes.model_deployments import ModelDeployments
from headway.controller.kubernetes.model_fetches import ModelFetches
from headway.controller.kubernetes.model_volume import ModelVolume
from tests.controller.kubernetes.planning import Api, Service


class Cluster:
    """The loop, a step at a time."""

    def __init__(self, checkpoint: Path) -> None:
        self.api, self.service = Api(), Service()
        self.num_workers: int | None = 1
        self.now_s = 0.0
        self.jobs: dict[str, dict[str, Any]] = {}
        self.template: FetchTemplate | None = None
        self._checkpoint = checkpoint
        self._declared: dict[str, dict[str, Any]] = {}
        self._models = self._controller()

    def _controller(self) -> ModelDeployments:
        self.volume = ModelVolume(directory=self._checkpoint.parent, claim="models")
        self._fetches = ModelFetches(self.api, template=self.template, volume=self.volume)  # type: ignore[arg-type]
        return ModelDeployments(
            self.api,  # type: ignore[arg-type]
            service=self.service,
            num_workers=lambda: self.num_workers,
            clock=lambda: self.now_s,
            volume=self.volume,
            fetches=self._fetches,
            is_emulated=False,
        )

    async def restart(self) -> None:
        """Another controller, which hears what the last one has written."""
        for name, declared in self._declared.items():
            declared["status"] = self.api.statuses[name]
        self._models = self._controller()
        await self.step()

    async def declare(self, name: str, *, approved: str = "", age: int = 0, **spec: Any) -> None:
        before = self._declared.get(name, {"metadata": {"generation": 0}, "spec": None})
        spec = ({} if "uri" in spec else {"path": str(self._checkpoint)}) | spec
        generation = before["metadata"]["generation"] + (spec != before["spec"])
        metadata = {"name": name, "uid": name, "generation": generation, "creationTimestamp": f"{9 - age}"}
        annotations = {"annotations": {"serving.headway.dev/apply": approved}} if approved else {}
        self._declared[name] = {"metadata": metadata | {"resourceVersion": "1"} | annotations, "spec": spec}
        await self.step()

    async def delete(self, name: str) -> None:
        del self._declared[name]
        await self.step()

    async def step(self) -> None:
        self._models.watch.objects = dict(self._declared)
        self._fetches.jobs.objects = dict(self.jobs)
        await self._models._step()

    @property
    def served(self) -> dict[str, int | None]:
        plan = self.service.desired_plan
        return {} if plan is None else {model.name: model.max_model_len for model in plan.models}

    def reason(self, name: str) -> str:
        [planned, *_] = self.api.statuses[name]["conditions"]
        return str(planned["reason"])
