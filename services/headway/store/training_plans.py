"""Training plans that were made, in a store of their own: none of them is the plan that serving goes by."""

from headway.core.plan.training import TrainingPlan
from headway.store.plan_documents import plan_documents
from headway.store.redis import Database
from headway.store.schema import TRAINING_PLAN


class TrainingPlanStore:
    """Training plans by their ids."""

    def __init__(self, database: Database) -> None:
        self._documents = plan_documents(database, TRAINING_PLAN, TrainingPlan)

    async def save(self, plan: TrainingPlan) -> None:
        await self._documents.put(plan, plan.plan_id)

    async def get(self, plan_id: str) -> TrainingPlan | None:
        return await self._documents.get(plan_id)

    async def delete(self, plan_id: str) -> bool:
        """Whether it was there."""
        return await self._documents.delete(plan_id)

    async def all(self) -> list[TrainingPlan]:
        """The newest first."""
        return sorted(await self._documents.all(), key=lambda plan: (plan.created_at_s, plan.plan_id), reverse=True)
