"""Which plan gave a model the groups that it has: later ones that leave those as they are do not count."""

from collections import defaultdict
from collections.abc import Collection, Mapping

from headway.controller.kubernetes.planned import Planned
from headway.controller.reconcile import load_orders_of
from headway.core.errors import NotFoundError
from headway.core.load_order import LoadOrder
from headway.core.plan.serving import ServingPlan

ModelOrders = Mapping[str, frozenset[LoadOrder]]
"""What groups are to load of each model that is planned for."""


class PlanOrigins:
    """Remembers them, so that the status of a resource need not change with each plan."""

    def __init__(self, service: Planned) -> None:
        self._service = service
        self._known: dict[str, tuple[str, frozenset[LoadOrder]]] = {}  # by model
        self._read: dict[str, ModelOrders] = {}  # by plan, for the models that are told of next

    async def of(self, model: str, orders: frozenset[LoadOrder], *, plan: ServingPlan, told: str) -> str:
        """The id of the plan since which these are the orders for a model.

        Args:
            plan: the desired one, which has them.
            told: what an earlier controller has told, empty for nothing.

        Raises:
            UnavailableError: the plans cannot be read.
        """
        known = self._known.get(model) or await self._find(told, model)
        if known is None or known[1] != orders:
            known = (plan.plan_id, orders)
        self._known[model] = known
        return known[0]

    def forget_others(self, models: Collection[str]) -> None:
        """Keeps what is known of these models, and no plans."""
        self._read = {}
        self._known = {model: known for model, known in self._known.items() if model in models}

    async def _find(self, plan_id: str, model: str) -> tuple[str, frozenset[LoadOrder]] | None:
        if not plan_id:
            return None
        if plan_id not in self._read:
            try:
                self._read[plan_id] = model_orders(await self._service.plan(plan_id))
            except NotFoundError:
                return None
        return plan_id, self._read[plan_id].get(model, frozenset())


def model_orders(plan: ServingPlan | None) -> ModelOrders:
    """The orders of a plan, by model."""
    orders: defaultdict[str, set[LoadOrder]] = defaultdict(set)
    for works in load_orders_of(plan).values() if plan is not None else ():
        for order in works:
            orders[order.model].add(order)
    return {model: frozenset(of_model) for model, of_model in orders.items()}
