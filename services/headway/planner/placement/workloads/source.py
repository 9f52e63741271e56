"""The requests that a placement is searched on, and others that it is checked on. Pure: files come as bytes."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.placement_problem import PlacementProblem, WorkloadSource
from headway.core.workload_spec import WorkloadKind, WorkloadSpec, parse_workload_spec
from headway.planner.placement.workload import Lengths, Workload
from headway.planner.placement.workloads.arrivals import Window, gamma_arrivals
from headway.planner.placement.workloads.azure import read_azure
from headway.planner.placement.workloads.bound import check_num_requests, check_num_windows
from headway.planner.placement.workloads.lengths import draw_lengths
from headway.planner.placement.workloads.merge import merged
from headway.planner.placement.workloads.resampling import resample
from headway.planner.placement.workloads.trace import no_requests, read_replay, read_trace

_DEFAULT_DURATION_S = 600.0
_SEARCHED, _HELD_OUT = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Workloads:
    """Workloads of one character that have different requests."""

    searched: Workload
    held_out: Workload


def make_workloads(problem: PlacementProblem, files: Mapping[str, bytes]) -> Workloads:
    """The same ones for the same arguments.

    Args:
        files: content of those that the problem's workload names.

    Raises:
        InvalidArgumentError: a specification or a file is at fault, or would make too many requests; names the option,
            or file and line.
        FailedPreconditionError: a file is not what it was.
    """
    source = problem.workload
    _check_numbers(source)
    _check_files(source, files)
    spec = parse_workload_spec(source.spec)
    if source.held_out:
        pair = [
            _make(each, problem, files, part=part)
            for part, each in ((_SEARCHED, spec), (_HELD_OUT, parse_workload_spec(source.held_out)))
        ]
    elif spec.kind.has_file:
        pair = _halves(spec, problem, files)
    else:
        pair = [_make(spec, problem, files, part=part) for part in (_SEARCHED, _HELD_OUT)]
    searched, held_out = (
        with_slos(with_lengths(workload, problem, part=part), problem) for part, workload in enumerate(pair)
    )
    return Workloads(searched=searched, held_out=held_out)


def with_lengths(workload: Workload, problem: PlacementProblem, *, part: int) -> Workload:
    """Requests for models that generate, and that do not say how long they are, get lengths of their model's."""
    if not any(model.generates for model in problem.models):
        return replace(workload, lengths=None)
    count = len(workload)
    known = workload.lengths or Lengths(prompt=np.zeros(count, np.int32), output=np.zeros(count, np.int32))
    prompt, output = known.prompt.copy(), known.output.copy()
    for number, model in enumerate(problem.models):
        is_its = workload.model == number
        if model.prompt is None or model.output is None:
            prompt[is_its] = output[is_its] = 0
            continue
        rng = _rng(problem.workload, part, f"lengths {number}")
        for tokens, lengths in ((prompt, model.prompt), (output, model.output)):
            drawn = draw_lengths(lengths.mean, lengths.cv, count=count, rng=rng)
            lacks = is_its & (tokens <= 0)
            tokens[lacks] = drawn[lacks]
    return replace(workload, lengths=Lengths(prompt=prompt, output=output))


def with_slos(workload: Workload, problem: PlacementProblem) -> Workload:
    """Requests without an objective (NaN) get their model's."""
    of_models = np.array([problem.slo_s(model) for model in problem.models])
    slo_s = np.where(np.isnan(workload.slo_s), of_models[workload.model], workload.slo_s)
    return replace(workload, slo_s=slo_s)


def _make(spec: WorkloadSpec, problem: PlacementProblem, files: Mapping[str, bytes], *, part: int) -> Workload:
    if not spec.kind.has_file:
        return _generate(spec, problem, part=part)
    recorded = _read(spec, problem, files)
    return _resampled(recorded, spec, _length_s(recorded, problem.workload), _rng(problem.workload, part, "resample"))


def _halves(spec: WorkloadSpec, problem: PlacementProblem, files: Mapping[str, bytes]) -> list[Workload]:
    """A file's first half is searched, its second held out: a plan is for requests that come later."""
    recorded = _read(spec, problem, files)
    half_s = _length_s(recorded, problem.workload) / 2
    middle = int(np.searchsorted(recorded.arrival_s, half_s))
    parts = [recorded.take(slice(middle)), recorded.take(slice(middle, None), start_s=half_s)]
    if not all(len(part) for part in parts):
        raise InvalidArgumentError(
            f"{spec.file} has no requests in one of its halves.",
            hint="The first half is searched and the second held out; give another file or span with --held-out.",
            field="workload",
        )
    return [_resampled(each, spec, half_s, _rng(problem.workload, part, "resample")) for part, each in enumerate(parts)]


def _read(spec: WorkloadSpec, problem: PlacementProblem, files: Mapping[str, bytes]) -> Workload:
    models, content = [model.name for model in problem.models], files[spec.file]
    duration_s = problem.workload.duration_s
    if spec.kind is WorkloadKind.AZURE:
        rng = _rng(problem.workload, _SEARCHED, "azure")
        return read_azure(content, file=spec.file, models=models, duration_s=duration_s, rng=rng)
    read = read_trace if spec.kind is WorkloadKind.TRACE else read_replay
    recorded = read(content, file=spec.file, models=models)
    if duration_s is None:
        return recorded
    early = int(np.searchsorted(recorded.arrival_s, duration_s))
    if early == 0:
        raise no_requests(f"{spec.file} before {duration_s:g} s")
    return recorded.take(slice(early))


def _resampled(recorded: Workload, spec: WorkloadSpec, duration_s: float, rng: np.random.Generator) -> Workload:
    options = dict(spec.options)
    most_s = options.pop("moved", 0.0)
    drawn = recorded
    if options:
        _check_resampling(recorded, spec, duration_s)
        drawn = resample(
            recorded,
            window_s=options.get("window", duration_s),
            duration_s=duration_s,
            rate_scale=options.get("rate_scale", 1.0),
            cv_scale=options.get("cv_scale", 1.0),
            rng=rng,
        )
    if most_s:
        drawn = drawn.moved(rng.uniform(-most_s, most_s, len(drawn.models)), span_s=duration_s)
    return _some(drawn, spec)


def _generate(spec: WorkloadSpec, problem: PlacementProblem, *, part: int) -> Workload:
    """Every model is a process of its own."""
    source, models = problem.workload, problem.models
    duration_s = source.duration_s or _DEFAULT_DURATION_S
    check_num_requests(
        spec.options["rate"] * duration_s,
        what=f"The workload {spec}, in {duration_s:g} s,",
        hint="Lower the rate, or give a shorter --duration.",
    )
    cv = spec.options.get("cv", 1.0)
    shares = np.array([model.share for model in models])
    if spec.kind is WorkloadKind.POWER_LAW:
        shares = shares * np.arange(1, len(models) + 1) ** -spec.options["alpha"]
    rates = spec.options["rate"] * shares / shares.sum()
    arrivals = [
        gamma_arrivals(
            [Window(duration_s=duration_s, rate=float(rate), cv=cv)],
            _rng(source, part, f"model {number}"),
        )
        for number, rate in enumerate(rates)
    ]
    names = [model.name for model in models]
    return _some(merged(names, arrivals, slo_s=[np.nan] * len(models)), spec)


def _check_resampling(recorded: Workload, spec: WorkloadSpec, duration_s: float) -> None:
    num_windows = duration_s / spec.options.get("window", duration_s) * len(recorded.models)
    check_num_windows(num_windows, what=f"The workload {spec}, in {duration_s:g} s,")
    check_num_requests(
        len(recorded) * spec.options.get("rate_scale", 1.0),
        what=f"The workload {spec}, of {len(recorded):,} recorded requests,",
        hint="Lower the rate_scale, or give a shorter --duration.",
    )


def _some(workload: Workload, spec: WorkloadSpec) -> Workload:
    if not len(workload):
        raise InvalidArgumentError(
            f"The workload {spec} gave no requests in that time.",
            hint="Give a longer --duration or a higher rate.",
            field="workload",
        )
    return workload


def _length_s(recorded: Workload, source: WorkloadSource) -> float:
    return source.duration_s or float(np.nextafter(recorded.arrival_s[-1], np.inf))


def _rng(source: WorkloadSource, part: int, purpose: str) -> np.random.Generator:
    """One for each purpose, so that a further model leaves the others' requests as they were."""
    digest = hashlib.sha256(purpose.encode()).digest()
    return np.random.default_rng([source.seed, part, int.from_bytes(digest[:8], "big")])


def _check_numbers(source: WorkloadSource) -> None:
    for name, value in (("duration", source.duration_s), ("slo_scale", source.slo_scale)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise InvalidArgumentError(
                f"The workload's {name} should be a positive number, not {value:g}.",
                hint=f"Give another --{name.replace('_', '-')}.",
                field=f"workload.{name}",
            )


def _check_files(source: WorkloadSource, files: Mapping[str, bytes]) -> None:
    for file in source.files:
        if file.name not in files:
            raise InvalidArgumentError(f"The file {file.name} is missing.", hint="Send it along.", field="files")
        if hashlib.sha256(files[file.name]).hexdigest() != file.sha256:
            raise FailedPreconditionError(
                f"{file.name} is not the file that the plan was made with.",
                hint="Bring it back, or make the plan anew.",
                field="files",
            )
