"""TeraPipe's model of one slice of a sequence (dissertation chapter 2, equation 2.9).

    t(i, j) = t(i, 0) + t_ctx(i, j),    t_ctx(i, j) = a0 + a1 i + a2 j + a3 i j,

of i tokens after j others. Of b sequences at once the three terms are sums over them: b i, b j and b i j.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextFit:
    """Coefficients of t_ctx in seconds; errors are of slices that the fit has not seen, 0.1 is 10 %.

    Attributes:
        relative_error: median of the error of t(i, j).
        max_relative_error: the largest of them.
        overhead_error: median of the error of t_ctx(i, j) alone.
    """

    a0: float
    a1: float
    a2: float
    a3: float
    relative_error: float
    max_relative_error: float
    overhead_error: float
    num_fitted: int
    num_held_out: int

    def seconds(self, slice_tokens: int, context_tokens: int, *, batch_size: int = 1) -> float:
        """Returns the seconds that the context adds; 0 where there is none."""
        if context_tokens == 0:
            return 0.0
        i, j = batch_size * slice_tokens, batch_size * context_tokens
        return self.a0 + self.a1 * i + self.a2 * j + self.a3 * i * context_tokens


@dataclass(frozen=True, slots=True)
class SliceLatency:
    """t(i, j): the first term as measured, linear between slices that were; the second as fitted.

    Attributes:
        measured: seconds by slice tokens, for each batch size.
    """

    measured: Mapping[int, Mapping[int, float]]
    context: ContextFit

    def seconds(self, slice_tokens: int, context_tokens: int, *, batch_size: int = 1) -> float:
        """KeyError where the batch size was not measured."""
        known = self.measured[batch_size]
        sizes = sorted(known)
        alone_s = float(np.interp(slice_tokens, sizes, [known[size] for size in sizes]))
        return alone_s + self.context.seconds(slice_tokens, context_tokens, batch_size=batch_size)

    def table(self, slice_tokens: Ints, context_tokens: Ints, *, batch_size: int = 1) -> Floats:
        """[slices, contexts]; as `seconds` of each. KeyError where the batch size was not measured."""
        known, fit = self.measured[batch_size], self.context
        sizes = sorted(known)
        alone_s = np.interp(slice_tokens, sizes, [known[size] for size in sizes])
        i, j = batch_size * slice_tokens[:, None], batch_size * context_tokens[None, :]
        context_s = fit.a0 + fit.a1 * i + fit.a2 * j + fit.a3 * i * context_tokens[None, :]
        return np.asarray(alone_s[:, None] + np.where(context_tokens[None, :] > 0, context_s, 0.0))
