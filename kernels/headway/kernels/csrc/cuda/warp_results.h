// What each warp of a CTA made of its own keys, brought together in shared memory and written out.
#pragma once

#include "decode_problem.h"

namespace headway {

// For each warp and head: sums of weighted values, the largest exponent, the sum of weights.
template <int kHeadDim, int kHeads>
struct WarpResults {
  float values[kWarps][kHeads][kHeadDim + 4];  // so that numbers of neighbouring heads lie in different banks
  float maxima[kWarps][kHeads];
  float sums[kWarps][kHeads];

  // Called by all threads once all results are in place; each warp writes some of the heads.
  __device__ void store(const DecodeProblem& problem, const WorkItem& item, const HeadTile& heads,
                        float value_scale) const {
    for (int head = warp_index(); head < heads.count; head += kWarps) {
      float max = maxima[0][head], weights[kWarps], sum = 0;
#pragma unroll
      for (int warp = 1; warp < kWarps; ++warp) max = fmaxf(max, maxima[warp][head]);
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) {
        weights[warp] = weight_of(maxima[warp][head], max);
        sum += weights[warp] * sums[warp][head];
      }
      const float factor = sum == 0 ? 0.0f : value_scale / sum;
#pragma unroll
      for (int first = 0; first < kHeadDim; first += 32) {
        const int dim = first + lane_index();
        if (dim >= problem.head_dim) continue;
        float value = 0;
#pragma unroll
        for (int warp = 0; warp < kWarps; ++warp) value += weights[warp] * values[warp][head][dim];
        store_value(problem, item, heads.first + head, dim, value * factor);
      }
      if (lane_index() == 0)
        store_logarithm(problem, item, heads.first + head, sum == 0 ? negative_infinity() : max * kLn2 + logf(sum));
    }
  }

  static __device__ __forceinline__ float* partial_of(const DecodeProblem& problem, const WorkItem& item,
                                                      int64_t head) {
    return problem.partials + (item.partial * problem.num_heads + head) * (problem.head_dim + 1);
  }

  static __device__ __forceinline__ void store_value(const DecodeProblem& problem, const WorkItem& item, int64_t head,
                                                     int dim, float value) {
    if (item.partial >= 0)
      partial_of(problem, item, head)[dim] = value;
    else
      store_number(problem.out, problem.out_dtype,
                   item.row * problem.out_row_stride + head * problem.out_head_stride + dim, value);
  }

  // Of the softmax's sum.
  static __device__ __forceinline__ void store_logarithm(const DecodeProblem& problem, const WorkItem& item,
                                                         int64_t head, float lse) {
    if (item.partial >= 0)
      partial_of(problem, item, head)[problem.head_dim] = lse;
    else if (problem.lse)
      problem.lse[item.row * problem.lse_row_stride + head * problem.lse_head_stride] = lse;
  }
};

}  // namespace headway
