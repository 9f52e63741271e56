"""The table of slices that a slice profile gives (equation 2.9). Pure."""

import numpy as np

from headway.core.errors import InvalidArgumentError
from headway.core.slice_latency import SliceLatency
from headway.core.slice_profile import SliceProfile
from headway.planner.terapipe.scheme import SliceTimes

STEP = 8  # tokens, as the dissertation's schemes have


def slice_times(profile: SliceProfile, *, step: int = STEP) -> SliceTimes:
    """The times of all slices of a setting, forward and backward together.

    Raises:
        InvalidArgumentError: the profile has no slices with context, or its sequence is no whole number of steps.
    """
    if profile.forward is None or profile.backward is None:
        raise InvalidArgumentError(
            f"Setting {profile.setting} has too few slices with context.",
            hint="Measure four at least, of different lengths after different contexts.",
            field="latency",
        )
    if profile.seq_len % step:
        raise InvalidArgumentError(
            f"A sequence of {profile.seq_len} tokens does not divide into steps of {step}.",
            hint="Give a step that divides it.",
            field="step",
        )
    forward = SliceLatency(profile.table.without_context(profile.table.forward_s), profile.forward)
    backward = SliceLatency(profile.table.without_context(profile.table.backward_s), profile.backward)
    sizes = step * np.arange(1, profile.seq_len // step + 1)
    known = [batch for batch in range(1, profile.batch + 1) if batch in forward.measured and batch in backward.measured]
    seconds = np.full((max(known), len(sizes), len(sizes)), np.inf)
    for batch in known:
        contexts = sizes - step
        layer_s = forward.table(sizes, contexts, batch_size=batch) + backward.table(sizes, contexts, batch_size=batch)
        sent_s = np.array([profile.communication.at(batch * size) for size in sizes.tolist()])
        seconds[batch - 1] = layer_s * profile.layers_per_stage + 2 * sent_s[:, None]
    return SliceTimes(
        seconds=seconds,
        step=step,
        num_stages=profile.pp,
        once_s=profile.layers_per_stage * float(np.mean(profile.table.update_s)),
    )
