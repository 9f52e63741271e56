// The largest output of a linear layer for each row: what it is given, and what is known of a row.
#pragma once

#include <atomic>
#include <cmath>
#include <limits>

#include "linear_panels.h"
#include "wait.h"

namespace headway {

// How often a sketch was asked, and in vain: one that leaves more than half of so many rows undecided is asked no more.
struct SketchTally {
  int64_t num_searched, num_undecided, is_useless;

  static constexpr int64_t kTrialRows = 1024;

  void count(int64_t searched, int64_t undecided) {
    num_searched += searched;
    num_undecided += undecided;
    if (num_searched < kTrialRows) return;
    is_useless = 2 * num_undecided > num_searched;
    num_searched = num_undecided = 0;
  }
};

struct LargestProblem {
  int64_t num_threads, dtype;
  int64_t* columns;  // [num_rows]: where the largest output is, the first of several; a NaN is larger than all else
  float* values;     // [num_rows]: the output
  const void* x;
  int64_t x_stride;
  const void* panels;   // as of headway_linear
  const float* scales;  // as of headway_linear
  const void* sketch;   // or null
  SketchTally* tally;   // of the sketch
  int64_t num_rows, in_features, out_features;
};

template <class T>
inline float as_stored(float value) {
  T stored[kLanes];
  store(stored, broadcast(value));
  return widen(stored[0]);
}

// The first of the largest values that were offered, in whatever order.
struct Largest {
  float value = -std::numeric_limits<float>::infinity();
  int64_t column = std::numeric_limits<int64_t>::max();

  void offer(float other, int64_t at) {
    if (std::isnan(value) ? !std::isnan(other) || at > column : other < value || (other == value && at > column)) return;
    value = other;
    column = at;
  }
};

}  // namespace headway
