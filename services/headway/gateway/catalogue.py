"""The models that the current plan serves."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from headway.core.errors import FailedPreconditionError, HeadwayError, NotFoundError, UnavailableError
from headway.core.plan import ModelDeployment, ServingPlan
from headway.gateway.model import ServedModel
from headway.gateway.text.template import ChatTemplate
from headway.gateway.text.tokenizer import Tokenizer
from headway.store.checkpoint import Checkpoint, read_checkpoint
from headway.store.plans import PlanStore

log = logging.getLogger(__name__)

_POLL_EVERY_S = 0.5
_PATIENCE_S = 0.5
_RETRY_S = 1.0


class Catalogue:
    """Follows the plan; the last known one stays while Redis is away.

    Attributes:
        plan: the current one; None before the first.
        models: those that can be asked for, by name.
        faults: why the others cannot, by name.
    """

    def __init__(self, plans: PlanStore) -> None:
        self.plan: ServingPlan | None = None
        self.models: Mapping[str, ServedModel] = {}
        self.faults: Mapping[str, HeadwayError] = {}
        self._plans = plans
        self._texts: dict[str, tuple[Tokenizer, ChatTemplate | None]] = {}
        self._refreshing = asyncio.Lock()

    async def get(self, name: str) -> ServedModel:
        """A model by its name; NotFoundError if not even the newest plan has one of that name."""
        if name not in self.models:
            await self.catch_up()
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
        names = ", ".join(model.name for model in self.plan.models)
        raise NotFoundError(f"The model '{name}' does not exist.", hint=f"Ask for one of: {names}.", field="model")

    async def watch(self) -> None:
        """Keeps the catalogue current for as long as the process lives."""
        while True:
            try:
                await self.refresh()
            except HeadwayError as error:
                log.warning("keeping the last known plan: %s", error)
            await asyncio.sleep(_POLL_EVERY_S)

    async def catch_up(self) -> None:
        """Takes in the current plan for somebody who waits; where that takes long, the last known one does."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self.refresh()
        except (HeadwayError, TimeoutError) as error:
            log.debug("answering from the last known plan: %s", error)

    async def refresh(self) -> None:
        """Takes in the current plan, if it is another; UnavailableError when Redis is away."""
        async with self._refreshing:
            plan_id = await self._plans.current_id()
            if not plan_id or (self.plan is not None and plan_id == self.plan.plan_id):
                return
            plan = await self._plans.get(plan_id)
            if plan is not None:
                await self._apply(plan)

    async def _apply(self, plan: ServingPlan) -> None:
        models: dict[str, ServedModel] = {}
        faults: dict[str, HeadwayError] = {}
        for deployment in plan.models:
            try:
                tokenizer, template = await self._text_of(deployment)
            except HeadwayError as error:
                log.warning("model %s cannot be served: %s", deployment.name, error)
                faults[deployment.name] = error
            else:
                models[deployment.name] = _serve(deployment, plan, tokenizer=tokenizer, template=template)
        self.plan, self.models, self.faults = plan, models, faults
        directories = {deployment.directory for deployment in plan.models}
        self._texts = {directory: text for directory, text in self._texts.items() if directory in directories}
        log.info("plan %s serves %s", plan.plan_id, ", ".join(models) or "nothing")

    async def _text_of(self, deployment: ModelDeployment) -> tuple[Tokenizer, ChatTemplate | None]:
        """A checkpoint's tokenizer and chat template, read once."""
        if deployment.directory not in self._texts:
            self._texts[deployment.directory] = await asyncio.to_thread(_read_text, Path(deployment.directory))
        return self._texts[deployment.directory]


def _read_text(directory: Path) -> tuple[Tokenizer, ChatTemplate | None]:
    checkpoint = read_checkpoint(directory, has_weights=False)
    return Tokenizer.load(checkpoint.tokenizer_file), _template_of(checkpoint)


def _template_of(checkpoint: Checkpoint) -> ChatTemplate | None:
    if checkpoint.chat_template is None:
        return None
    try:
        return ChatTemplate(checkpoint.chat_template, bos_token=checkpoint.bos_token, eos_token=checkpoint.eos_token)
    except FailedPreconditionError as error:
        log.warning("%s: chat is not available: %s", checkpoint.directory, error)
        return None


def _serve(
    deployment: ModelDeployment, plan: ServingPlan, *, tokenizer: Tokenizer, template: ChatTemplate | None
) -> ServedModel:
    """The longest sequence and the blocks are those that every replica can do with."""
    replicas = [assignment for assignment in plan.assignments if assignment.model == deployment.name]
    lengths = [assignment.max_model_len for assignment in replicas]
    block_sizes = {assignment.block_size if assignment.enable_prefix_cache else 0 for assignment in replicas}
    return ServedModel(
        name=deployment.name,
        spec=deployment.spec,
        tokenizer=tokenizer,
        template=template,
        max_model_len=min(lengths, default=deployment.max_model_len or deployment.spec.max_position),
        num_replicas=len(replicas),
        block_size=block_sizes.pop() if len(block_sizes) == 1 else 0,
        slo=deployment.slo,
        created_at_s=plan.created_at_s,
        fingerprint=f"fp_{'emulated_' if plan.is_emulated else ''}{deployment.spec.content_hash[:12]}",
        is_emulated=plan.is_emulated,
    )
