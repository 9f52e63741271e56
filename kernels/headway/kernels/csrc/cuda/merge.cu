// Attention over all keys of a row, from what was made of parts of them: by splits of one device, or by the shards of
// several.
#include "device.h"

namespace headway {

// Filled in by cuda/attention_calls.py, field by field in this order, eight bytes each. Strides count elements.
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

constexpr int kMaxMergeThreads = 256;
constexpr int kAtOnce = 8;  // partials whose values a thread has under way: it divides a warp

// What there is of one row and head.
struct Partials {
  const float* first;
  int64_t stride;
  int count, head_dim;

  __device__ Partials(const MergeProblem& problem, int64_t row, int64_t head)
      : first(problem.partials + head * problem.head_stride),
        stride(problem.partial_stride),
        count(static_cast<int>(problem.num_partials)),
        head_dim(static_cast<int>(problem.head_dim)) {
    if (problem.starts) {
      const int start = problem.starts[row];
      first += start * stride;
      count = problem.starts[row + 1] - start;
    } else {
      first += row * problem.row_stride;
    }
  }

  __device__ __forceinline__ float logarithm(int i) const { return first[i * stride + head_dim]; }

  // Each warp finds it by itself.
  __device__ __forceinline__ float largest_logarithm() const {
    float largest = negative_infinity();
    for (int i = lane_index(); i < count; i += 32) largest = fmaxf(largest, logarithm(i));
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, lanes));
    return largest;
  }
};

// What `num` partials from number `begin` on add to the sum of weights and to that of weighted values. Behind the last
// the weights are zeros up to a multiple of kAtOnce; what a partial of no weight holds is not looked at.
__device__ __forceinline__ void add_partials(const Partials& partials, const float* weights, int begin, int num,
                                             int dim, float& sum, float& value) {
  const float* from = partials.first + begin * partials.stride + dim;
  for (int i = 0; i < num; i += kAtOnce) {
    float values[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      values[k] = *from;
      if (i + k + 1 < num) from += partials.stride;  // the last is read again in place of those that there are not
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const float weight = weights[i + k];
      sum += weight;
      value += weight > 0 ? weight * values[k] : 0.0f;
    }
  }
}

// One CTA for each row and head, a thread for each dimension. A row without partials of its own is whole already, and
// left alone.
__global__ void __launch_bounds__(kMaxMergeThreads) merge_partials(const MergeProblem problem) {
  const int64_t row = blockIdx.x, head = blockIdx.y;
  const Partials partials(problem, row, head);
  wait_for_last();  // also where nothing is left to do: what comes behind this launch counts on that before it
  if (partials.count == 0) return;
  const float max = partials.largest_logarithm();
  float* const weights = dynamic_shared<float>();  // of as many partials as there are threads
  const int thread = static_cast<int>(threadIdx.x), num_threads = static_cast<int>(blockDim.x);
  for (int first_dim = 0; first_dim < partials.head_dim; first_dim += num_threads) {
    const bool has_dim = first_dim + thread < partials.head_dim;
    const int dim = has_dim ? first_dim + thread : 0;
    float sum = 0, value = 0;
    for (int begin = 0; begin < partials.count; begin += num_threads) {
      const int left = partials.count - begin;
      const float logarithm = thread < left ? partials.logarithm(begin + thread) : negative_infinity();
      __syncthreads();  // all have done with the weights before
      weights[thread] = logarithm == negative_infinity() ? 0.0f : fast_exp2((logarithm - max) * kLog2E);
      __syncthreads();
      add_partials(partials, weights, begin, left < num_threads ? left : num_threads, dim, sum, value);
    }
    if (has_dim)
      store_number(problem.out, problem.out_dtype, row * problem.out_row_stride + head * problem.out_head_stride + dim,
                   sum == 0 ? 0.0f : value / sum);
    if (problem.lse && first_dim + thread == 0)
      problem.lse[row * problem.lse_row_stride + head * problem.lse_head_stride] =
          sum == 0 ? negative_infinity() : max + logf(sum);
  }
}

}  // namespace headway

HEADWAY_API int headway_merge_partials(const headway::MergeProblem* problem) {
  using namespace headway;
  const int64_t whole_warps = (problem->head_dim + 31) / 32 * 32;
  const auto num_threads = static_cast<unsigned>(whole_warps < kMaxMergeThreads ? whole_warps : kMaxMergeThreads);
  const dim3 grid{static_cast<unsigned>(problem->num_rows), static_cast<unsigned>(problem->num_heads), 1};
  return launch_early(merge_partials, grid, dim3{num_threads, 1, 1}, num_threads * sizeof(float), problem->stream,
                      *problem);
}
