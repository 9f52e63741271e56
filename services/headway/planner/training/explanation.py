"""Why a training plan was chosen, what it is better than, and what would change the choice. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headway.core.cost.costs import Costs
from headway.core.plan.training import TrainingAlternative, TrainingPlan, TrainingSensitivity
from headway.planner.training.alpa import Found
from headway.planner.training.alternatives import alternatives
from headway.planner.training.best_cut import BestCut
from headway.planner.training.graph_search import Pipeline
from headway.planner.training.problem import TrainingProblem
from headway.planner.training.reasons import binding, reasons
from headway.planner.training.sensitivity import sensitivities


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingExplanation:
    """What an explanation adds to a plan."""

    reasons: tuple[str, ...]
    alternatives: tuple[TrainingAlternative, ...]
    sensitivities: tuple[TrainingSensitivity, ...]

    def of(self, plan: TrainingPlan) -> TrainingPlan:
        """The plan with its explanation."""
        return replace(plan, reasons=self.reasons, alternatives=self.alternatives, sensitivities=self.sensitivities)


def explain(
    problem: TrainingProblem, costs: Sequence[Costs], found: Pipeline, *, should_stop: Callable[[], bool]
) -> TrainingExplanation:
    """Searches what else could be, for the plan's number of micro-batches and the next ones: some three searches' time.

    Of a graph of stages and of slices it is told what binds, and by `with_methods` what they are better than.

    Args:
        should_stop: then what is known until then is told.
    """
    search = BestCut(problem=problem, costs=costs, found=found)
    near = _near(problem.numbers_of_micro_batches(), found.num_micro_batches)
    tables = [search.tables(number) for number in near]
    changes = tuple(sensitivities(search, tables=tables, should_stop=should_stop))
    if isinstance(found, Found):
        why = reasons(problem, found, search=search.alpa, tables=tables, sensitivities=changes)
    else:
        why = binding(problem, found, changes)
    return TrainingExplanation(
        reasons=tuple(why),
        alternatives=tuple(alternatives(problem, costs, found, micro_batches=near, should_stop=should_stop)),
        sensitivities=changes,
    )


def _near(numbers: list[int], number: int) -> list[int]:
    at = numbers.index(number)
    return numbers[max(0, at - 1) : at + 2]
