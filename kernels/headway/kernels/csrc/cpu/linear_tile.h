// A few rows times one panel of a packed weight, in registers.
//
// A panel holds the weights of a few registers' worth of output features: for each input feature in order, those of
// all of them side by side, so that a product streams through it once. Every output is summed over the input features
// in order, in one accumulator: a row's result does not depend on the rows beside it. Weights of one byte are widened
// as they are loaded, which costs little beside waiting for four times as many bytes.
#pragma once

#include "vec.h"

namespace headway {

// A tile's accumulators, one row of the panel and one factor: 29 of 32 registers, or 15 of 16.
constexpr int kPanelVecs = kLanes == 16 ? 4 : 2;
constexpr int kTileRows = 6;
constexpr int64_t kPanel = kPanelVecs * kLanes;

// finish(r, sums) for each of kRows rows, with the row's products in the order of the panel's features.
template <int kRows, class Weight, class Finish>
inline void multiply_tile(const float* x, int64_t x_stride, const Weight* panel, int64_t depth, Finish finish) {
  Vec sums[kRows][kPanelVecs] = {};
  for (int64_t k = 0; k < depth; ++k, panel += kPanel) {
    Vec weights[kPanelVecs];
#pragma GCC unroll 8
    for (int c = 0; c < kPanelVecs; ++c) weights[c] = load(panel + c * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const float factor = x[r * x_stride + k];
#pragma GCC unroll 8
      for (int c = 0; c < kPanelVecs; ++c) sums[r][c] += factor * weights[c];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) finish(r, sums[r]);
}

// The same for a number of rows that is known at run time, from 1 to kTileRows.
template <int kRows = kTileRows, class Weight, class Finish>
inline void multiply_rows(int64_t num_rows, const float* x, int64_t x_stride, const Weight* panel, int64_t depth,
                          Finish finish) {
  if constexpr (kRows > 1)
    if (num_rows < kRows) return multiply_rows<kRows - 1>(num_rows, x, x_stride, panel, depth, finish);
  multiply_tile<kRows>(x, x_stride, panel, depth, finish);
}

}  // namespace headway
