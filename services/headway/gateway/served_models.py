"""The models that the current plan serves."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from headway.checkpoint.model_directory import Checkpoint, read_checkpoint
from headway.core.adapter import Adapter
from headway.core.engine_kind import EngineKind
from headway.core.errors import FailedPreconditionError, HeadwayError, NotFoundError, UnavailableError
from headway.core.plan.serving import ModelDeployment, ServingPlan
from headway.core.sampling_defaults import SamplingDefaults
from headway.gateway.model import ServedModel
from headway.gateway.text.template import ChatTemplate
from headway.gateway.text.tokenizer import Tokenizer
from headway.store.plan_follower import PlanFollower
from headway.store.plans import PlanStore

log = logging.getLogger(__name__)

_RETRY_S = 1.0


class _Source(NamedTuple):
    """What a model's text depends on; see `ModelDeployment`."""

    directory: str
    generation_config: str
    engine: EngineKind
    tool_parser: str
    reasoning_parser: str


@dataclass(frozen=True, slots=True)
class _CheckpointText:
    """The tokenizer, chat template and defaults that the gateway reads from a checkpoint."""

    tokenizer: Tokenizer
    template: ChatTemplate | None
    sampling_defaults: SamplingDefaults


class ServedModels:
    """The models that the current plan serves.

    Attributes:
        follower: follows the plan in the store.
        plan: the current one; None before the first.
        models: those that can be asked for, by name.
        faults: why the other models cannot be asked for, by name.
    """

    def __init__(self, plans: PlanStore) -> None:
        self.plan: ServingPlan | None = None
        self.models: Mapping[str, ServedModel] = {}
        self.faults: Mapping[str, HeadwayError] = {}
        self.follower = PlanFollower(plans, take=self._apply)
        self._texts: dict[_Source, _CheckpointText] = {}
        self._has_plan = asyncio.Event()

    async def wait_for_plan(self, *, timeout_s: float) -> None:
        """Returns when the models of a plan have been read, or after so long without."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._has_plan.wait()

    async def get(self, name: str) -> ServedModel:
        """A model by its name; NotFoundError if not even the newest plan has one of that name."""
        if name not in self.models:
            await self.follower.catch_up()
        if (model := self.models.get(name)) is not None:
            return model
        if self.plan is None:
            raise UnavailableError(
                "No model is served yet.", hint="Headway is starting; try again in a moment.", retry_after_s=_RETRY_S
            )
        if name in self.faults:
            raise UnavailableError(
                f"The checkpoint of the model '{name}' cannot be read.", hint="The gateway's log and /ready say why."
            )
        names = ", ".join(self.models)
        raise NotFoundError(f"The model '{name}' does not exist.", hint=f"Ask for one of: {names}.", field="model")

    @property
    def worker_models(self) -> set[str]:
        """The models that workers have for them."""
        return {model.worker_model for model in self.models.values()}

    async def _apply(self, plan: ServingPlan) -> None:
        models: dict[str, ServedModel] = {}
        faults: dict[str, HeadwayError] = {}
        for deployment in plan.models:
            try:
                text = await self._text_of(deployment)
            except HeadwayError as error:
                log.warning("model %s cannot be served: %s", deployment.name, error)
                faults[deployment.name] = error
            else:
                served = _serve(deployment, plan, text=text)
                models[deployment.name] = served
                models |= {each.name: _changed(served, each) for each in deployment.adapters}
        self.plan, self.models, self.faults = plan, models, faults
        self._has_plan.set()
        sources = {_source_of(deployment) for deployment in plan.models}
        self._texts = {source: text for source, text in self._texts.items() if source in sources}
        log.info("plan %s serves %s", plan.plan_id, ", ".join(models) or "nothing")

    async def _text_of(self, deployment: ModelDeployment) -> _CheckpointText:
        """Returns the tokenizer and templates of a checkpoint, which is read once."""
        source = _source_of(deployment)
        if source not in self._texts:
            self._texts[source] = await asyncio.to_thread(_read_text, source)
        return self._texts[source]


def _source_of(deployment: ModelDeployment) -> _Source:
    return _Source(
        deployment.directory,
        deployment.generation_config,
        deployment.engine,
        deployment.tool_parser,
        deployment.reasoning_parser,
    )


def _read_text(source: _Source) -> _CheckpointText:
    checkpoint = read_checkpoint(
        Path(source.directory),
        has_weights=False,
        generation_config=source.generation_config,
        engine=source.engine,
    )
    tokenizer = Tokenizer.load(checkpoint.tokenizer_file)
    return _CheckpointText(tokenizer, _template_of(checkpoint, source), checkpoint.sampling_defaults)


def _template_of(checkpoint: Checkpoint, source: _Source) -> ChatTemplate | None:
    if checkpoint.chat_template is None:
        return None
    try:
        return ChatTemplate(
            checkpoint.chat_template,
            bos_token=checkpoint.bos_token,
            eos_token=checkpoint.eos_token,
            tool_parser=source.tool_parser,
            reasoning_parser=source.reasoning_parser,
        )
    except FailedPreconditionError as error:
        log.warning("%s: chat is not available: %s", checkpoint.directory, error)
        return None


def _changed(model: ServedModel, adapter: Adapter) -> ServedModel:
    """A model as an adapter changes it."""
    fingerprint = f"{model.fingerprint}_{adapter.digest[:6]}"
    return replace(model, name=adapter.name, base=model.name, adapter=adapter, fingerprint=fingerprint)


def _serve(deployment: ModelDeployment, plan: ServingPlan, *, text: _CheckpointText) -> ServedModel:
    """The longest sequence and the blocks are those that every replica can do with."""
    replicas = [assignment for assignment in plan.assignments if assignment.model == deployment.name]
    lengths = [assignment.max_model_len for assignment in replicas]
    block_sizes = {assignment.block_size if assignment.enable_prefix_cache else 0 for assignment in replicas}
    return ServedModel(
        name=deployment.name,
        spec=deployment.spec,
        tokenizer=text.tokenizer,
        template=text.template,
        sampling_defaults=text.sampling_defaults,
        max_model_len=min(lengths, default=deployment.max_model_len or deployment.spec.max_position),
        num_replicas=len(replicas),
        block_size=block_sizes.pop() if len(block_sizes) == 1 else 0,
        slo=deployment.slo,
        created_at_s=plan.created_at_s,
        fingerprint=f"fp_{'emulated_' if plan.is_emulated else ''}{deployment.spec.content_hash[:12]}",
        is_emulated=plan.is_emulated,
    )
