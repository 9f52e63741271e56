"""Changes a rank's parameters by their gradients.

The updates are torch's own kernels, called without `torch.optim`, whose import of the compiler takes longer than a
small run.
"""

from collections.abc import Iterator, Mapping
from math import cos, pi

import torch

from headway.core.training_job import OptimizerSettings
from headway.train.shard import PIECE

STEP, _FIRST, _SECOND, _MOMENTUM = "step", "exp_avg", "exp_avg_sq", "momentum_buffer"
"""The first is how often a parameter was changed."""
_KEPT = {"adamw": (_FIRST, _SECOND), "momentum": (_MOMENTUM,), "sgd": ()}


class Optimizer:
    """Ranks that hold the same parameter keep the same state for it, and change it alike.

    Args:
        parameters: by name, which are changed in place.
        gradients: of the same names.
        num_steps: of the whole run.
    """

    def __init__(
        self,
        settings: OptimizerSettings,
        parameters: Mapping[str, torch.Tensor],
        gradients: Mapping[str, torch.Tensor],
        *,
        num_steps: int,
    ) -> None:
        self._settings, self._num_steps = settings, num_steps
        self._names = list(parameters)
        self._parameters = list(parameters.values())
        self._gradients = [gradients[name] for name in self._names]
        self._kept = {key: [torch.zeros_like(each) for each in self._parameters] for key in _KEPT[settings.name]}
        self._counts = [each.new_zeros((), dtype=torch.float32) for each in self._parameters]

    @torch.no_grad()
    def step(self, number: int, norm: float) -> None:
        """Changes all parameters.

        Args:
            number: of the step, from 0 on.
            norm: of the whole gradient, over all ranks; gradients are scaled where it is above the bound.
        """
        if not self._parameters:
            return
        settings = self._settings
        if settings.clip is not None and norm > settings.clip:
            torch._foreach_mul_(self._gradients, settings.clip / (norm + 1e-6))
        torch._foreach_add_(self._counts, 1.0)
        rate = rate_at(settings, number, self._num_steps)
        if settings.name == "adamw":
            self._adamw(rate)
        else:
            self._descend(rate)

    def _adamw(self, rate: float) -> None:
        torch._fused_adamw_(
            self._parameters,
            self._gradients,
            self._kept[_FIRST],
            self._kept[_SECOND],
            [],
            self._counts,
            lr=rate,
            beta1=self._settings.beta1,
            beta2=self._settings.beta2,
            weight_decay=self._settings.weight_decay,
            eps=self._settings.epsilon,
            amsgrad=False,
            maximize=False,
        )

    def _descend(self, rate: float) -> None:
        """Plain, or along the momentum, which is the gradient's running sum."""
        changes = self._gradients
        if self._settings.weight_decay:
            torch._foreach_add_(changes, self._parameters, alpha=self._settings.weight_decay)
        if _MOMENTUM in self._kept:
            torch._foreach_mul_(self._kept[_MOMENTUM], self._settings.momentum)
            torch._foreach_add_(self._kept[_MOMENTUM], changes)
            changes = self._kept[_MOMENTUM]
        torch._foreach_add_(self._parameters, changes, alpha=-rate)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The keys of what is kept for each parameter in its shape."""
        return tuple(self._kept)

    def state(self) -> dict[str, torch.Tensor]:
        """What is kept for the parameters, by 'KEY/NAME'."""
        return {f"{key}/{name}": value for key, name, value in self._entries()}

    def restore(self, state: Mapping[str, torch.Tensor]) -> None:
        """Takes what a checkpoint has, of whichever ranks and pieces."""
        for key, given, value in self._entries():
            name, _, first = given.partition(PIECE)
            known = state.get(f"{key}/{name}")
            if known is not None and value.ndim:
                start = int(first or 0)
                value.copy_(known.flatten()[start : start + value.numel()].view_as(value))
            elif known is not None:
                value.copy_(known)

    def _entries(self) -> Iterator[tuple[str, str, torch.Tensor]]:
        for key, values in (*self._kept.items(), (STEP, self._counts)):
            yield from ((key, name, value) for name, value in zip(self._names, values, strict=True))


def rate_at(settings: OptimizerSettings, step: int, num_steps: int) -> float:
    """The learning rate of a step, counted from 0 on."""
    if step < settings.warm_up:
        return settings.rate * (step + 1) / settings.warm_up
    if settings.schedule == "constant":
        return settings.rate
    share = (step - settings.warm_up) / max(1, num_steps - 1 - settings.warm_up)
    left = (1 + cos(pi * share)) / 2 if settings.schedule == "cosine" else 1 - share
    return settings.least_rate + (settings.rate - settings.least_rate) * left
