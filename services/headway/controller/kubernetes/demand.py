"""What is asked of the models, from samples of the router's view. Pure: time is given.

Unknown, stale and zero are three things: nothing was ever heard, or not for long enough; what was heard is too old, as
where the router is away or a group does not report; it is known that nobody asks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from headway.controller.router_view import ModelSample
from headway.core.plan.serving import Assignment, ModelDeployment, ServingPlan

_STALE_AFTER_S = 15.0
_CONTEXT_TOKENS = 512  # of a running sequence, as predictions have it


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandSample:
    """All models at one moment, on a clock that does not jump."""

    at_s: float
    models: Mapping[str, ModelSample]


class Knowledge(StrEnum):
    """What a demand rests on."""

    UNKNOWN = "MetricsUnknown"
    STALE = "MetricsStale"
    KNOWN = "MetricsKnown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDemand:
    """What was asked of a model.

    Attributes:
        attainment: the share of requests of the window that met their SLO; None where none had one.
        num_present: requests at once, at most, in the window.
        num_peak: the same, in all the time that is looked at before a pool shrinks.
    """

    attainment: float | None = None
    num_present: int = 0
    num_peak: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What was asked of the models; `watched_s` is how long without a gap."""

    knowledge: Knowledge
    models: Mapping[str, ModelDemand]
    watched_s: float = 0.0


class DemandWindow:
    """Keeps the samples that decisions rest on.

    Args:
        window_s: over which attainment is measured.
        peak_s: over which the highest load counts, at least as long.
    """

    def __init__(self, *, window_s: float, peak_s: float) -> None:
        self._window_s = window_s
        self._peak_s = max(window_s, peak_s)
        self._samples: list[DemandSample] = []

    def add(self, sample: DemandSample) -> None:
        """Takes in a sample. After a gap, or where counting began anew, what was before says nothing any more."""
        before = self._samples[-1] if self._samples else None
        if before is not None and (sample.at_s - before.at_s > _STALE_AFTER_S or _is_reset(before, sample)):
            self._samples.clear()
        # One older than the window is kept: what was counted is a difference.
        oldest_s = sample.at_s - self._peak_s
        while len(self._samples) > 1 and self._samples[1].at_s <= oldest_s:
            del self._samples[0]
        self._samples.append(sample)

    def demand(self, *, now_s: float) -> Demand:
        if not self._samples:
            return Demand(knowledge=Knowledge.UNKNOWN, models={})
        last = self._samples[-1]
        if now_s - last.at_s > _STALE_AFTER_S:
            return Demand(knowledge=Knowledge.STALE, models={})
        watched_s = last.at_s - self._samples[0].at_s
        if watched_s < self._window_s:
            return Demand(knowledge=Knowledge.UNKNOWN, models={}, watched_s=watched_s)
        models = {name: self._demand_of(name) for name in last.models}
        return Demand(knowledge=Knowledge.KNOWN, models=models, watched_s=watched_s)

    def _demand_of(self, name: str) -> ModelDemand:
        last = self._samples[-1]
        window = [sample for sample in self._samples if last.at_s - sample.at_s <= self._window_s]
        first, now = window[0].models.get(name, ModelSample()), last.models[name]
        num_judged = now.num_judged - first.num_judged
        return ModelDemand(
            attainment=(now.num_met - first.num_met) / num_judged if num_judged else None,
            num_present=_most(window, name),
            num_peak=_most(self._samples, name),
        )


def capacities(plan: ServingPlan) -> dict[str, int]:
    """How many requests of each model run at once within its objective, as the plan predicts."""
    models = {model.name: model for model in plan.models}
    found = dict.fromkeys(models, 0)
    for assignment in plan.assignments:
        found[assignment.model] += _capacity(assignment, models[assignment.model])
    return found


def _capacity(assignment: Assignment, model: ModelDeployment) -> int:
    latency, most = assignment.prediction.latency, assignment.max_num_seqs
    if model.spec.encoder is not None or model.slo.tpot_s is None:
        return most
    each_s = latency.per_decode_s + latency.per_context_token_s * _CONTEXT_TOKENS
    return most if each_s <= 0 else max(0, min(most, int((model.slo.tpot_s - latency.base_s) / each_s)))


def _is_reset(before: DemandSample, after: DemandSample) -> bool:
    """Whether counting began anew in between."""
    return any(
        after.models.get(name, ModelSample()).num_judged < sample.num_judged for name, sample in before.models.items()
    )


def _most(samples: list[DemandSample], name: str) -> int:
    return max(sample.models.get(name, ModelSample()).num_present for sample in samples)
