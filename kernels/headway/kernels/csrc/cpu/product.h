// A few rows times a matrix, blocked in registers. Every element is summed in one fixed order, first to last, in
// one accumulator: a row's result does not depend on the rows beside it.
#pragma once

#include "vec.h"

namespace headway {

constexpr int kMaxRows = 4;  // rows of the left matrix that share each load of the right one

// The largest power of two so that num_rows * columns accumulators stay in registers.
constexpr int columns_for(int num_rows, int most) {
  int num_columns = 1;
  while (num_columns * 2 <= most && num_columns * 2 * num_rows <= kAccumulators) num_columns *= 2;
  return num_columns;
}

template <int kRows, int kColumns, class RowOf, class Sink>
inline void multiply_block(const float* left, int64_t left_stride, int depth, RowOf right, int column, Sink sink) {
  Vec sums[kRows][kColumns] = {};
  for (int k = 0; k < depth; ++k) {
    Vec factors[kColumns];
    for (int c = 0; c < kColumns; ++c) factors[c] = right(k, column + c);
    for (int r = 0; r < kRows; ++r)
      for (int c = 0; c < kColumns; ++c) sums[r][c] += left[r * left_stride + k] * factors[c];
  }
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kColumns; ++c) sink(r, (column + c) * kLanes, sums[r][c]);
}

template <int kRows, int kColumns, class RowOf, class Sink>
inline void multiply_columns(const float* left, int64_t left_stride, int depth, RowOf right, int column,
                             int num_columns, Sink sink) {
  for (; column + kColumns <= num_columns; column += kColumns)
    multiply_block<kRows, kColumns>(left, left_stride, depth, right, column, sink);
  if constexpr (kColumns > 1)
    multiply_columns<kRows, kColumns / 2>(left, left_stride, depth, right, column, num_columns, sink);
}

// sink(r, j * kLanes, sum over k < depth of left[r][k] * right(k, j)) for kRows rows and `num_columns` registers j, at
// most kMostColumns of them at a time.
template <int kRows, int kMostColumns, class RowOf, class Sink>
inline void multiply(const float* left, int64_t left_stride, int depth, RowOf right, int num_columns, Sink sink) {
  multiply_columns<kRows, columns_for(kRows, kMostColumns)>(left, left_stride, depth, right, 0, num_columns, sink);
}

}  // namespace headway
