"""Costs of programs that are not measured. Pure."""

from headway.core.catalogue.device import Device
from headway.core.catalogue.figure import Provenance
from headway.core.catalogue.roofline import OperatorTime, OperatorWork, operator_time
from headway.core.errors import InvalidArgumentError
from headway.core.model_profile import Cost
from headway.core.profiling_units import OperatorGroup, ProfilingUnits


def estimate(subject: ProfilingUnits, device: Device, *, num_threads: int) -> dict[str, Cost]:
    """Estimates each operator by its roofline, and layers and the whole by the sum. Left out where the device has no
    rate.
    """
    times: dict[str, OperatorTime] = {}
    for group in subject.operators:
        try:
            times[group.program] = operator_time(_work(group), device, num_threads=num_threads)
        except InvalidArgumentError:
            continue
    costs = {program: _cost(time.seconds, time.relative_error) for program, time in times.items()}
    for program, counts in subject.members().items():
        if counts.keys() <= times.keys():
            seconds = sum(count * times[member].seconds for member, count in counts.items())
            error = max((times[member].relative_error for member in counts), default=0.0)
            costs.setdefault(program, _cost(seconds, error))
    return costs


def _cost(seconds: float, relative_error: float) -> Cost:
    return Cost(seconds=seconds, provenance=Provenance.ESTIMATED, relative_error=relative_error)


def _work(group: OperatorGroup) -> OperatorWork:
    return OperatorWork(flops=group.flops, bytes_moved=group.bytes_moved, dtype=group.dtype, extents=group.extents)
