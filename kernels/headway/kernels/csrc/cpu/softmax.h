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

// Turns the scores of a tile, of kRows rows, into exp(score - max) where firsts[r] <= n < ends[r] and 0 elsewhere. Updates
// the running maxima and the sums that each lane keeps, and gives the factors that bring earlier sums to the new maxima.
template <int kRows, int kTileKeys>
inline void exponentiate(float (&scores)[kRows][kTileKeys], int num_vecs, const int (&firsts)[kRows],
                         const int (&ends)[kRows], float* running_max, float* lane_sums, float (&rescale)[kRows]) {
  static_assert(kRows <= kLanes, "a register has a lane for each row");
  Vec maxima[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) maxima[r] = broadcast(kNegativeInfinity);
  const bool all_visible = *std::max_element(firsts, firsts + kRows) == 0 &&
                           *std::min_element(ends, ends + kRows) == num_vecs * kLanes;
  for (int c = 0; c < num_vecs; ++c) {
    const IntVec n = lane_numbers() + c * kLanes;
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      Vec visible = load(&scores[r][c * kLanes]);
      if (!all_visible) {
        visible = select((n >= firsts[r]) & (n < ends[r]), visible, broadcast(kNegativeInfinity));
        store(&scores[r][c * kLanes], visible);
      }
      maxima[r] = max(maxima[r], visible);
    }
  }
  Vec bases[kRows], sums[kRows] = {};
  Vec distances{};
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const float new_max = std::max(running_max[r], max(maxima[r]));
    const float base = new_max == kNegativeInfinity ? 0.0f : new_max;  // of a row that sees no key yet
    bases[r] = broadcast(base);
    distances[r] = running_max[r] - base;
    running_max[r] = new_max;
  }
  for (int c = 0; c < num_vecs; ++c) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const Vec weights = exp(load(&scores[r][c * kLanes]) - bases[r]);
      store(&scores[r][c * kLanes], weights);
      sums[r] += weights;
    }
  }
  const Vec factors = exp(distances);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    rescale[r] = factors[r];
    store(lane_sums + r * kLanes, load(lane_sums + r * kLanes) * rescale[r] + sums[r]);
  }
}

}  // namespace headway
