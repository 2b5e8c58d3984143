"""Operators of PyTorch whose bits never vary, because they do the same IEEE operations in one order everywhere.

Most of them move data, compare, or do one operation per element; `cumsum` and `cumprod` go from element to element.
`tests/training/test_fixed.py` runs each of them with several threads, instruction sets, memory formats and sizes.
"""

from __future__ import annotations

_ARITHMETIC = """
    abs add ceil clamp clamp_max clamp_min copysign div floor frac mul neg reciprocal round
    sgn sign sub trunc floor_divide rsub nan_to_num relu threshold threshold_backward hardtanh leaky_relu
    leaky_relu_backward _prelu_kernel _prelu_kernel_backward hardsigmoid hardsigmoid_backward hardswish
    hardshrink frexp native_dropout_backward _amp_foreach_non_finite_check_and_unscale _amp_update_scale
    cumprod cumsum
"""
_COMPARISONS = """
    eq ne lt le gt ge equal isnan isinf isneginf isposinf isin logical_and logical_not logical_or logical_xor
    bitwise_and bitwise_not bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift __lshift__ __rshift__
    __ilshift__ __irshift__ signbit all any argmax argmin max min sort topk kthvalue median
    nanmedian mode cummax cummin _cummax_helper _cummin_helper count_nonzero nonzero nonzero_static searchsorted
    bucketize unique_consecutive unique_dim _unique _unique2 bincount max_pool2d_with_indices max_pool3d_with_indices
    max_pool2d_with_indices_backward max_pool3d_with_indices_backward adaptive_max_pool2d adaptive_max_pool3d
    adaptive_max_pool2d_backward adaptive_max_pool3d_backward avg_pool1d avg_pool3d avg_pool2d_backward
    avg_pool3d_backward allclose _is_all_true _is_any_true is_same_size is_set_to _has_same_storage_numel
"""
_MOVES = """
    _conj _conj_physical _copy_from _efficientzerotensor _lazy_clone _local_scalar_dense _neg_view
    _new_zeros_with_same_feature_meta _pin_memory _reshape_alias _reshape_copy _resize_output _stack _to_copy
    _unsafe_index _unsafe_view _chunk_cat _fw_primal _make_dual _assert_async _functional_assert_async _assert_scalar
    _functional_assert_scalar _assert_tensor_metadata _print alias as_strided block_diag cat channel_shuffle
    native_channel_shuffle clone complex conj_physical col2im constant_pad_nd contiguous copy copy_ detach diagonal
    diagonal_backward embedding empty empty_like empty_permuted empty_strided expand eye fill flip from_file full
    full_like gather im2col index index_fill index_select is_pinned lift lift_fresh masked_fill masked_scatter
    masked_select narrow_copy new_empty new_empty_strided new_full new_ones new_zeros ones ones_like permute
    pixel_shuffle pixel_unshuffle repeat repeat_interleave resize resize_as roll rot90 scalar_tensor scatter select
    select_backward set slice slice_backward slice_inverse split split_with_sizes squeeze stack t take transpose tril
    tril_indices triu triu_indices unbind unfold unsafe_split unsafe_split_with_sizes unsqueeze view view_as_complex
    view_as_real view_copy where zero zeros zeros_like reflection_pad1d reflection_pad2d reflection_pad3d
    replication_pad1d replication_pad2d replication_pad3d upsample_nearest1d upsample_nearest2d upsample_nearest3d
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_nearest1d_backward
    upsample_nearest2d_backward upsample_nearest3d_backward _upsample_nearest_exact1d_backward
    _upsample_nearest_exact2d_backward _upsample_nearest_exact3d_backward reflection_pad1d_backward
    reflection_pad2d_backward reflection_pad3d_backward replication_pad1d_backward replication_pad2d_backward
    replication_pad3d_backward
"""
_INTEGERS = "gcd lcm randint randperm"  # random integers come from the generator without arithmetic
ARITHMETIC, COMPARISONS, MOVES = _ARITHMETIC.split(), _COMPARISONS.split(), _MOVES.split()
FIXED = frozenset((*ARITHMETIC, *COMPARISONS, *MOVES, *_INTEGERS.split()))
"""Names of operators without their overloads; the in-place form of each is included."""

OTHER_LIBRARIES = {
    "convgrad": "",
    "profiler": "",
    "fsdp": "",
    "_c10d_functional": "all_reduce all_reduce_ all_reduce_coalesced all_reduce_coalesced_ reduce_scatter_tensor",
    "c10d": "allreduce_ allreduce_coalesced_ reduce_ reduce_scatter_ _reduce_scatter_base_",
}
"""Namespaces beside aten whose operators are fixed, without the operators named here."""
