"""Exports the router's predictions, to be compared with what the gateway measures of the same requests."""

from headway.observe.metrics import PREDICTED_TPOT_SECONDS, PREDICTED_TTFT_SECONDS, SLO_PREDICTED
from headway.router.lease import Lease, LeaseOutcome, Release


def predicted(lease: Lease, release: Release) -> bool | None:
    """Whether a request that ended was to keep its SLO; None without one, and where nothing was predicted."""
    slo = release.slo or lease.slo
    if not slo or lease.ttft_s is None or release.outcome not in (LeaseOutcome.COMPLETE, LeaseOutcome.ERROR):
        return None
    e2e_s = None if lease.e2e_s is None else lease.waited_s + lease.e2e_s
    return slo.is_met(ttft_s=lease.waited_s + lease.ttft_s, tpot_s=lease.tpot_s, e2e_s=e2e_s)


def observe_release(lease: Lease, release: Release) -> None:
    """Exports what was predicted of a request that ended."""
    if release.outcome is LeaseOutcome.COMPLETE and release.ttft_s is not None and lease.ttft_s is not None:
        PREDICTED_TTFT_SECONDS.labels(lease.model).observe(lease.waited_s + lease.ttft_s)
        if lease.tpot_s is not None and release.tpot_s is not None:
            PREDICTED_TPOT_SECONDS.labels(lease.model).observe(lease.tpot_s)
    if (is_met := predicted(lease, release)) is not None:
        SLO_PREDICTED.labels(lease.model, "met" if is_met else "missed").inc()


def observe_refusal(model: str) -> None:
    """Exports that a request was refused since its SLO could not be kept."""
    SLO_PREDICTED.labels(model, "missed").inc()
