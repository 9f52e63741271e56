"""Workers that compute prompts, and workers that go on with them: when that can be."""

from collections.abc import Sequence

from headway.core.errors import InvalidArgumentError
from headway.core.parallel_config import SINGLE
from headway.core.plan.serving import EngineLimits, ModelDeployment


def num_role_workers(limits: EngineLimits) -> int:
    """Workers that have a role; 0 where each does everything."""
    return (limits.prefill_workers or 0) + (limits.decode_workers or 0)


def check_roles(models: Sequence[ModelDeployment], limits: EngineLimits) -> None:
    """Raises InvalidArgumentError where prompts cannot be computed by other workers than those that go on with them,
    naming what works."""
    if not limits.is_disaggregated:
        return
    if not limits.prefill_workers or not limits.decode_workers:
        missing = "decode_workers" if limits.prefill_workers else "prefill_workers"
        raise InvalidArgumentError(
            "Prompts are computed by some workers and gone on with by others: there must be one of each.",
            hint="Give --prefill-workers 1 --decode-workers 1 or more, or neither.",
            field=missing,
        )
    if limits.parallel != SINGLE:
        raise InvalidArgumentError(
            f"Blocks move between lone workers only, and a group has {limits.parallel}.",
            hint="Leave --tp, --pp and --cp out, or --prefill-workers and --decode-workers.",
            field="prefill_workers",
        )
    if limits.enable_prefix_cache is False:
        raise InvalidArgumentError(
            "Blocks come to a decode worker through its prefix cache, and there is to be none.",
            hint="Leave --no-prefix-cache out, or --prefill-workers and --decode-workers.",
            field="enable_prefix_cache",
        )
    if len(models) > 1:
        raise InvalidArgumentError(
            f"Prefill and decode workers serve one model, and there are {len(models)}.",
            hint="Start a stack for each model, or leave --prefill-workers and --decode-workers out.",
            field="models",
        )
    if models and models[0].spec.encoder is not None:
        raise InvalidArgumentError(
            f"The model '{models[0].name}' does not generate: there is nothing to decode.",
            hint="Leave --prefill-workers and --decode-workers out; --workers N gives it N replicas.",
            field="prefill_workers",
        )
