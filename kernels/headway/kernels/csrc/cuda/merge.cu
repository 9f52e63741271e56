// Attention over all keys of a row, from what was made of parts of them: by splits of one device, or by the shards of
// several.
#include "device.h"

namespace headway {

// Filled in by cuda/kernels.py, field by field in this order, eight bytes each. Strides count elements.
struct MergeProblem {
  int64_t out_dtype;
  void* out;
  int64_t out_row_stride, out_head_stride;
  float* lse;  // null: not wanted
  int64_t lse_row_stride, lse_head_stride;
  const float* partials;  // head_dim values, then the log of the softmax's sum; -inf: none of the keys is seen
  int64_t partial_stride, row_stride, head_stride;
  const int32_t* starts;  // [rows + 1]: a row's partials begin here, and it has no row_stride; null: each row has all
  int64_t num_partials;   // without `starts`
  int64_t num_rows, num_heads, head_dim;
  int64_t stream;
};

// One warp for each row and head. A row without partials of its own is whole already, and left alone.
__global__ void __launch_bounds__(kThreads) merge_partials(const MergeProblem problem) {
  const int64_t index = int64_t{blockIdx.x} * kWarps + warp_index();
  const int64_t row = index / problem.num_heads, head = index % problem.num_heads;
  if (row >= problem.num_rows) return;
  const int64_t first = problem.starts ? problem.starts[row] : 0;
  const int64_t count = problem.starts ? problem.starts[row + 1] - first : problem.num_partials;
  if (count == 0) return;
  const float* partials = problem.partials + first * problem.partial_stride +
                          (problem.starts ? 0 : row * problem.row_stride) + head * problem.head_stride;
  const float* logarithms = partials + problem.head_dim;

  float max = negative_infinity();
  for (int64_t i = lane_index(); i < count; i += 32) max = fmaxf(max, logarithms[i * problem.partial_stride]);
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, lanes));

  const auto weight = [&](int64_t i) {
    const float logarithm = logarithms[i * problem.partial_stride];
    return logarithm == negative_infinity() ? 0.0f : fast_exp2((logarithm - max) * kLog2E);
  };
  float sum = 0;
  for (int64_t i = lane_index(); i < count; i += 32) sum += weight(i);
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(kAllLanes, sum, lanes);

  const float factor = sum == 0 ? 0.0f : 1.0f / sum;
  for (int64_t dim = lane_index(); dim < problem.head_dim; dim += 32) {
    float value = 0;
    for (int64_t i = 0; i < count; ++i) {
      const float share = weight(i);
      if (share > 0) value += share * partials[i * problem.partial_stride + dim];
    }
    store_number(problem.out, problem.out_dtype, row * problem.out_row_stride + head * problem.out_head_stride + dim,
                 value * factor);
  }
  if (problem.lse && lane_index() == 0)
    problem.lse[row * problem.lse_row_stride + head * problem.lse_head_stride] =
        sum == 0 ? negative_infinity() : max + logf(sum);
}

}  // namespace headway

HEADWAY_API int headway_merge_partials(const headway::MergeProblem* problem) {
  using namespace headway;
  const int64_t num_warps = problem->num_rows * problem->num_heads;
  const dim3 grid{static_cast<unsigned>((num_warps + kWarps - 1) / kWarps), 1, 1};
  return launch(merge_partials, grid, dim3{kThreads, 1, 1}, 0, problem->stream, *problem);
}
