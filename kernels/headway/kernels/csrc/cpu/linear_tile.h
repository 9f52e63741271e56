// A few rows times one panel of a packed weight, in registers.
//
// A panel holds the weights of a few registers' worth of output features: for each input feature in order, those of
// all of them side by side, so that a product streams through it once; in bfloat16 for each pair of input features, with
// the two of each output feature next to each other. Every output is summed over the input features in order, in one
// accumulator: a row's result does not depend on the rows beside it. Weights of one byte are widened as they are loaded,
// which costs little beside waiting for four times as many bytes.
#pragma once

#include "vec.h"

namespace headway {

// Memory that the core will want soon, asked for a line at a time between the arithmetic: where a panel is read for the
// first time, the hardware does not look far enough ahead.
struct Ahead {
  const char *next = nullptr, *end = nullptr;

  template <class Element>
  static Ahead of(const Element* first, int64_t size) {
    return {reinterpret_cast<const char*>(first), reinterpret_cast<const char*>(first + size)};
  }

  void ask() {
    if (next >= end) return;
    __builtin_prefetch(next, /*write=*/0, /*locality=*/2);
    next += 64;
  }
};

// A tile's accumulators, one row of the panel and one factor: 29 of 32 registers, or 15 of 16.
constexpr int kPanelVecs = kLanes == 16 ? 4 : 2;
constexpr int kTileRows = 6;
constexpr int64_t kPanel = kPanelVecs * kLanes;

// Input features whose weights lie together.
template <class Weight>
constexpr int64_t kInterleaved = 1;
template <>
inline constexpr int64_t kInterleaved<bfloat16> = 2;

// sums[r][c] += x[r * x_stride] * columns[c]
template <int kRows, int kVecs, class X>
inline void add_products(Vec (&sums)[kRows][kVecs], const X* x, int64_t x_stride, const Vec (&columns)[kVecs]) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const float factor = widen(x[r * x_stride]);
#pragma GCC unroll 8
    for (int c = 0; c < kVecs; ++c) sums[r][c] += factor * columns[c];
  }
}

// A step of a tile: the products of the next kInterleaved input features, or of the first `count` of them.
template <int kRows, int kVecs, class X, class Weight>
inline void accumulate(Vec (&sums)[kRows][kVecs], const X* x, int64_t x_stride, const Weight* weights, int64_t) {
  Vec columns[kVecs];
#pragma GCC unroll 8
  for (int c = 0; c < kVecs; ++c) columns[c] = load(weights + c * kLanes);
  add_products(sums, x, x_stride, columns);
}

template <int kRows, int kVecs>
inline void accumulate(Vec (&sums)[kRows][kVecs], const bfloat16* x, int64_t x_stride, const bfloat16* weights,
                       int64_t count) {
  UintVec pairs[kVecs];
#pragma GCC unroll 8
  for (int c = 0; c < kVecs; ++c) pairs[c] = load_pairs(weights + 2 * c * kLanes);
#if defined(__AVX512BF16__)
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    uint32_t factors = 0;
    std::memcpy(&factors, x + r * x_stride, count * sizeof *x);
#pragma GCC unroll 8
    for (int c = 0; c < kVecs; ++c)
      sums[r][c] = _mm512_dpbf16_ps(sums[r][c], reinterpret_cast<__m512bh>(factors - UintVec{}),
                                    reinterpret_cast<__m512bh>(pairs[c]));
  }
#else
  Vec columns[kVecs];
#pragma GCC unroll 8
  for (int c = 0; c < kVecs; ++c) columns[c] = widen_first(pairs[c]);
  add_products(sums, x, x_stride, columns);
  if (count < 2) return;
#pragma GCC unroll 8
  for (int c = 0; c < kVecs; ++c) columns[c] = widen_second(pairs[c]);
  add_products(sums, x + 1, x_stride, columns);
#endif
}

// finish(r, sums) for each of kRows rows, with the row's products in the order of the panel's features: of all of them, or
// of kVecs registers from where `panel` points to.
template <int kRows, int kVecs = kPanelVecs, class X, class Weight, class Finish>
inline void multiply_tile(const X* x, int64_t x_stride, const Weight* panel, int64_t depth, Ahead& ahead,
                          Finish finish) {
  constexpr int64_t kStep = kInterleaved<Weight>;
  Vec sums[kRows][kVecs] = {};
  Ahead lines = ahead;
  int64_t k = 0;
  for (; k + kStep <= depth; k += kStep) {
    lines.ask();
    accumulate(sums, x + k, x_stride, panel + k * kPanel, kStep);
  }
  ahead = lines;
  if (k < depth) accumulate(sums, x + k, x_stride, panel + k * kPanel, depth - k);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) finish(r, sums[r]);
}

// The same for a number of rows that is known at run time, from 1 to kTileRows.
template <int kRows = kTileRows, class X, class Weight, class Finish>
inline void multiply_rows(int64_t num_rows, const X* x, int64_t x_stride, const Weight* panel, int64_t depth,
                          Ahead& ahead, Finish finish) {
  if constexpr (kRows > 1)
    if (num_rows < kRows) return multiply_rows<kRows - 1>(num_rows, x, x_stride, panel, depth, ahead, finish);
  multiply_tile<kRows>(x, x_stride, panel, depth, ahead, finish);
}

}  // namespace headway
