"""Rules that give each aten operator its family, its loops and its arithmetic."""

import torch
from torch._ops import OpOverload

from headway.core.graph import OperatorKind
from headway.profiler.capture.call import Rule
from headway.profiler.capture.contraction import CONTRACTIONS
from headway.profiler.capture.elementwise import along, opaque, pointwise, pooling, reduction
from headway.profiler.capture.indexing import (
    by_indices,
    elements_along,
    embedding,
    embedding_backward,
    part_of,
    rows_along,
    scatter,
)
from headway.profiler.capture.losses import nll_loss, nll_loss_backward
from headway.profiler.capture.norms import channel_norm, layer_norm
from headway.profiler.capture.viewing import is_view


def rule_of(op: OpOverload) -> Rule | None:
    """Finds the rule of an operator; None where the operator is not known."""
    name = base_name(op)
    if name is None:
        return None
    if (rule := _RULES.get(name)) is not None:
        return rule
    if torch.Tag.reduction in op.tags:
        return reduction
    return pointwise(OperatorKind.ELEMENTWISE) if torch.Tag.pointwise in op.tags else None


def is_known(op: object) -> bool:
    """Whether the operator needs no decomposition into others."""
    return isinstance(op, OpOverload) and (is_view(op) or rule_of(op) is not None)


def base_name(op: OpOverload) -> str | None:
    """The name of an aten operator without overload and without the underscore of its in-place form; None for
    others."""
    namespace, _, name = op._schema.name.partition("::")  # noqa: SLF001 - its only name
    if namespace != "aten":
        return None
    return name.removesuffix("_") if not name.endswith("__") else name


_NAMES: tuple[tuple[Rule, str], ...] = (
    (
        layer_norm,
        """
            native_layer_norm native_layer_norm_backward _fused_rms_norm _fused_rms_norm_backward
        """,
    ),
    (
        channel_norm,
        """
            native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training native_batch_norm_backward
            native_group_norm native_group_norm_backward _native_batch_norm_legit_functional cudnn_batch_norm
            _batch_norm_with_update batch_norm_backward _batch_norm_no_update
        """,
    ),
    (
        along(OperatorKind.SOFTMAX, dim_argument=1),
        """
            _softmax _log_softmax _safe_softmax logsumexp
        """,
    ),
    (
        along(OperatorKind.SOFTMAX, dim_argument=2),
        """
            _softmax_backward_data _log_softmax_backward_data
        """,
    ),
    (
        embedding,
        """
            embedding _embedding_bag _embedding_bag_forward_only
        """,
    ),
    (
        embedding_backward,
        """
            embedding_dense_backward _embedding_bag_backward _embedding_bag_dense_backward
            _embedding_bag_per_sample_weights_backward
        """,
    ),
    (
        reduction,
        """
            sum mean amax amin max min prod var var_mean std any all argmax argmin linalg_vector_norm norm
            mse_loss count_nonzero
        """,
    ),
    (nll_loss, "nll_loss_forward nll_loss2d_forward"),
    (nll_loss_backward, "nll_loss_backward nll_loss2d_backward"),
    (elements_along, "gather scatter scatter_add scatter_reduce"),
    (rows_along, "index_select index_add index_copy"),
    (by_indices, "index index_put _unsafe_index_put"),
    (part_of, "slice_scatter select_scatter slice_backward select_backward"),
    (scatter, "masked_scatter index_fill"),
    (
        along(OperatorKind.SORT, dim_argument=2),
        """
            topk
        """,
    ),
    (
        along(OperatorKind.SORT, dim_argument=1),
        """
            sort argsort bincount histc
        """,
    ),
    (
        along(OperatorKind.SCAN, dim_argument=1),
        """
            cumsum cumprod cummax cummin logcumsumexp
        """,
    ),
    (
        pooling,
        """
            max_pool2d_with_indices max_pool2d_with_indices_backward max_pool3d_with_indices
            max_pool3d_with_indices_backward avg_pool1d avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward
            _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _adaptive_avg_pool3d_backward
            adaptive_max_pool2d upsample_nearest2d upsample_bilinear2d upsample_nearest2d_backward
            upsample_bilinear2d_backward
        """,
    ),
    (
        opaque(OperatorKind.COPY),
        """
            clone _to_copy copy cat stack constant_pad_nd roll flip repeat tril triu lift_fresh_copy
            reflection_pad2d im2col col2im pixel_shuffle new_empty_strided
        """,
    ),
    (
        opaque(OperatorKind.CREATE),
        """
            arange full full_like zeros zeros_like ones ones_like empty empty_like new_zeros new_ones new_full
            new_empty scalar_tensor eye linspace rand randn randint rand_like randn_like randint_like randperm
            empty_strided bernoulli uniform normal exponential fill zero tril_indices triu_indices one_hot
        """,
    ),
    (
        pointwise(OperatorKind.ELEMENTWISE),
        """
            native_dropout native_dropout_backward leaky_relu_backward mse_loss_backward glu glu_backward polar
            _fused_dropout elu_backward hardtanh_backward hardswish_backward
            log_sigmoid_forward log_sigmoid_backward view_as_complex_copy relu _prelu_kernel _prelu_kernel_backward
            dropout isin bucketize searchsorted masked_fill where
        """,
    ),
)
_RULES: dict[str, Rule] = CONTRACTIONS | {name: rule for rule, names in _NAMES for name in names.split()}
