"""Stage profiles of one kind of device, as another kind would have them."""

from dataclasses import replace

from headway.core.catalogue import Catalogue, Device, Provenance
from headway.core.stage_profile import StageProfile, stage_profile_id

_DTYPES = ("float16", "float32")
"""That are compared: the first that both compute in."""


def scale_profile(profile: StageProfile, *, device: str, catalogue: Catalogue) -> StageProfile:
    """An upper bound of its latencies on another device; weights and activations stay.

    What bounds a stage, arithmetic, memory or the links of its group, is not known of a profile. Each scales with the
    rate that whole models reach, and the largest of the ratios is taken; how far the smallest is below it is added to
    the relative error.

    Raises:
        NotFoundError: the catalogue lacks a device.
    """
    ratios = _ratios(catalogue.device(profile.hardware), catalogue.device(device))
    if profile.pp * profile.op > 1:
        lines = [catalogue.links[catalogue.device(name).link].fabric for name in (profile.hardware, device)]
        ratios.append(lines[0].bytes_per_s / lines[1].bytes_per_s)
    factor = max(ratios)
    return replace(
        profile,
        profile_id=stage_profile_id(profile.model, device, pp=profile.pp, op=profile.op),
        hardware=device,
        batches=tuple(
            replace(batch, stage_latency_s=tuple(factor * each for each in batch.stage_latency_s))
            for batch in profile.batches
        ),
        source=f"{profile.source}; on {profile.hardware}, times {factor:.3g} by the catalogue's rates",
        provenance=Provenance.ESTIMATED,
        relative_error=profile.relative_error + (factor - min(ratios)) / factor,
    )


def _ratios(known: Device, other: Device) -> list[float]:
    """Seconds on the other device over those on the known one, of arithmetic and of reading."""
    ratios = [known.reached_bytes_per_s() / other.reached_bytes_per_s()]
    dtype = next((each for each in _DTYPES if each in known.peak and each in other.peak), None)
    if dtype is not None:
        ratios.append(known.reached_flops(dtype) / other.reached_flops(dtype))
    return ratios
