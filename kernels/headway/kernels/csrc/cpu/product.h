// A few rows times a matrix, blocked in registers. Every element is summed in one fixed order, first to last, in
// one accumulator: a row's result does not depend on the rows beside it.
#pragma once

#include <algorithm>

#include "vec.h"

namespace headway {

constexpr int kMaxRows = 4;  // rows of the left matrix that share each load of the right one

// The largest power of two so that num_rows * columns accumulators stay in registers.
constexpr int columns_for(int num_rows, int most) {
  int num_columns = 1;
  while (num_columns * 2 <= most && num_columns * 2 * num_rows <= kAccumulators) num_columns *= 2;
  return num_columns;
}

// Steps of the sums between two calls of `between`.
constexpr int kStepsBetween = 4;

template <int kRows, int kColumns, int kLeftStride, class Right, class Between, class Sink>
inline void multiply_block(const float* left, int depth, const Right& right, int column, Between between, Sink sink) {
  const auto row_of = right.template columns<kColumns>(column);
  Vec sums[kRows][kColumns] = {};
  for (int k = 0; k < depth;) {
    between();
    for (const int end = std::min(depth, k + kStepsBetween); k < end; ++k) {
      Vec factors[kColumns];
      const auto row = row_of(k);
#pragma GCC unroll 16
      for (int c = 0; c < kColumns; ++c) factors[c] = row(c);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const float factor = left[r * kLeftStride + k];
#pragma GCC unroll 16
        for (int c = 0; c < kColumns; ++c) sums[r][c] += factor * factors[c];
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) sink(r, (column + c) * kLanes, sums[r][c]);
}

template <int kRows, int kColumns, int kLeftStride, class Right, class Between, class Sink>
inline void multiply_columns(const float* left, int depth, const Right& right, int column, int num_columns,
                             Between between, Sink sink) {
  for (; column + kColumns <= num_columns; column += kColumns)
    multiply_block<kRows, kColumns, kLeftStride>(left, depth, right, column, between, sink);
  if constexpr (kColumns > 1)
    multiply_columns<kRows, kColumns / 2, kLeftStride>(left, depth, right, column, num_columns, between, sink);
}

// sink(r, j * kLanes, sum over k < depth of left[r * kLeftStride + k] * right[k][j]) for kRows rows and `num_columns`
// registers j, at most kMostColumns of them at a time. right.columns<n>(j)(k)(c) gives register j + c of row k, c < n;
// `between` is called every now and then.
template <int kRows, int kMostColumns, int kLeftStride, class Right, class Between, class Sink>
inline void multiply(const float* left, int depth, const Right& right, int num_columns, Between between, Sink sink) {
  multiply_columns<kRows, columns_for(kRows, kMostColumns), kLeftStride>(left, depth, right, 0, num_columns, between,
                                                                         sink);
}

}  // namespace headway
