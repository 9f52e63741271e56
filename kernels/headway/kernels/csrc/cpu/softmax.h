// The running softmax of a few query rows, and how two of them combine.
#pragma once

#include <algorithm>
#include <limits>

#include "vec.h"

namespace headway {

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();

// For each row, over the keys seen so far: `max` of the scores, `sum` of exp(score - max), and `values`, the sum of
// exp(score - max) * value. A view of memory that lies elsewhere.
struct Softmax {
  float *values, *max, *sum;
  int64_t stride;  // floats from one row's values to the next

  static int64_t floats_per_row(int64_t head_dim) { return round_up_to_vec(head_dim) + 2; }

  Softmax(float* memory, int64_t num_rows, int64_t head_dim)
      : values(memory),
        max(memory + num_rows * round_up_to_vec(head_dim)),
        sum(max + num_rows),
        stride(round_up_to_vec(head_dim)) {}

  void reset(int64_t num_rows) {
    std::fill_n(values, num_rows * stride, 0.0f);
    std::fill_n(max, num_rows, kNegativeInfinity);
    std::fill_n(sum, num_rows, 0.0f);
  }

  // Takes in the keys that `other` has seen.
  void merge(const Softmax& other, int64_t num_rows) {
    for (int64_t r = 0; r < num_rows; ++r) {
      const float new_max = std::max(max[r], other.max[r]);
      if (new_max == kNegativeInfinity) continue;
      const float ours = exp(broadcast(max[r] - new_max))[0];
      const float theirs = exp(broadcast(other.max[r] - new_max))[0];
      max[r] = new_max;
      sum[r] = sum[r] * ours + other.sum[r] * theirs;
      float* to = values + r * stride;
      const float* from = other.values + r * stride;
      for (int64_t i = 0; i < stride; i += kLanes) store(to + i, load(to + i) * ours + load(from + i) * theirs);
    }
  }
};

// Turns one row's scores of a tile into exp(score - max) where begin <= n < end and 0 elsewhere. Updates the running
// maximum and the sums that each lane keeps, and returns the factor that brings earlier sums to the new maximum.
inline float exponentiate(float* scores, int num_vecs, int begin, int end, float& running_max, float* lane_sums) {
  Vec tile_max = broadcast(kNegativeInfinity);
  for (int c = 0; c < num_vecs; ++c) {
    const IntVec n = lane_numbers() + c * kLanes;
    const Vec visible = select((n >= begin) & (n < end), load(scores + c * kLanes), broadcast(kNegativeInfinity));
    store(scores + c * kLanes, visible);
    tile_max = max(tile_max, visible);
  }
  const float new_max = std::max(running_max, max(tile_max));
  const float base = new_max == kNegativeInfinity ? 0.0f : new_max;  // of a row that sees no key yet
  Vec sums{};
  for (int c = 0; c < num_vecs; ++c) {
    const Vec weights = exp(load(scores + c * kLanes) - base);
    store(scores + c * kLanes, weights);
    sums += weights;
  }
  const float rescale = exp(broadcast(running_max - base))[0];
  store(lane_sums, load(lane_sums) * rescale + sums);
  running_max = new_max;
  return rescale;
}

}  // namespace headway
