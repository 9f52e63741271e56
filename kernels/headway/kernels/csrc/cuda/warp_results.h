// What each warp of a CTA made of its own keys, brought together in shared memory and written out.
#pragma once

#include "decode_problem.h"

namespace headway {

// For each warp and head: sums of weighted values, the largest exponent, the sum of weights.
template <int kHeadDim, int kHeads>
struct WarpResults {
  float values[kWarps][kHeads][kHeadDim];
  float maxima[kWarps][kHeads];
  float sums[kWarps][kHeads];

  // Called by all threads once all results are in place: heads [first_head, first_head + num_heads) of the item's row.
  __device__ void store(const DecodeProblem& problem, const WorkItem& item, int64_t first_head, int num_heads,
                        float value_scale) const {
    for (int i = static_cast<int>(threadIdx.x); i < num_heads * kHeadDim; i += kThreads) {
      const int head = i / kHeadDim, dim = i % kHeadDim;
      if (dim >= problem.head_dim) continue;
      float max = maxima[0][head];
      for (int warp = 1; warp < kWarps; ++warp) max = fmaxf(max, maxima[warp][head]);
      float value = 0, sum = 0;
      for (int warp = 0; warp < kWarps; ++warp) {
        const float weight = weight_of(maxima[warp][head], max);
        value += weight * values[warp][head][dim];
        sum += weight * sums[warp][head];
      }
      const bool is_empty = sum == 0;
      value = is_empty ? 0.0f : value * value_scale / sum;
      const float lse = is_empty ? negative_infinity() : max * kLn2 + logf(sum);
      const int64_t at = first_head + head;
      if (item.partial >= 0) {
        float* partial = problem.partials + (item.partial * problem.num_heads + at) * (problem.head_dim + 1);
        partial[dim] = value;
        if (dim == 0) partial[problem.head_dim] = lse;
      } else {
        store_number(problem.out, problem.out_dtype, item.row * problem.out_row_stride + at * problem.out_head_stride + dim,
                     value);
        if (dim == 0 && problem.lse)
          problem.lse[item.row * problem.lse_row_stride + at * problem.lse_head_stride] = lse;
      }
    }
  }
};

}  // namespace headway
