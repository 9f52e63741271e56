// The largest output of rows of which nothing is known: all outputs, as headway_linear computes them, but none is kept.
#pragma once

#include <memory>
#include <vector>

#include "largest.h"

namespace headway {

// Whoever finds a larger output writes it down under the row's lock.
struct alignas(64) RowLargest {
  std::atomic<float> value{-std::numeric_limits<float>::infinity()};  // as `largest` has it, to be read at any time
  std::atomic_flag lock = ATOMIC_FLAG_INIT;
  Largest largest;

  // Outputs [column, column + num_columns) of the row.
  template <class T>
  void offer(const T* outputs, int64_t column, int64_t num_columns) {
    while (lock.test_and_set(std::memory_order_acquire)) relax_core();
    for (int64_t i = 0; i < num_columns; ++i) largest.offer(widen(outputs[i]), column + i);
    value.store(largest.value, std::memory_order_relaxed);
    lock.clear(std::memory_order_release);
  }
};

template <class T>
inline void offer_panel(const LargestProblem& p, int64_t panel, const Vec (&sums)[kPanelVecs], RowLargest& row) {
  const int64_t column = panel * kPanel, num_columns = std::min(kPanel, p.out_features - column);
  const float known = row.value.load(std::memory_order_relaxed);
  T outputs[kPanel];
  IntVec may_win{};
  for (int c = 0; c < kPanelVecs; ++c) {
    const int64_t first = c * kLanes;
    Vec output = sums[c];
    if (p.scales && first + kLanes <= num_columns)
      output *= load(p.scales + column + first);
    else if (p.scales && first < num_columns)
      output *= load(p.scales + column + first, Partial{static_cast<int>(num_columns - first)});
    store(outputs + first, output);
    may_win |= ~(load(outputs + first) < known);  // a NaN may
  }
  const IntVec nothing{};
  if (std::memcmp(&may_win, &nothing, sizeof nothing) != 0) row.offer(outputs, column, num_columns);
}

// Of x's rows with the given numbers.
template <class T, class Weight>
inline void search_whole(const LargestProblem& p, const std::vector<int64_t>& rows) {
  const int64_t num_rows = static_cast<int64_t>(rows.size()), num_panels = (p.out_features + kPanel - 1) / kPanel;
  const std::unique_ptr<T[]> x(new T[num_rows * p.in_features]);  // one after the other
  for (int64_t i = 0; i < num_rows; ++i)
    std::memcpy(x.get() + i * p.in_features, static_cast<const T*>(p.x) + rows[i] * p.x_stride,
                p.in_features * sizeof(T));
  const std::unique_ptr<RowLargest[]> found(new RowLargest[num_rows]);
  multiply_panels(x.get(), p.in_features, num_rows, static_cast<const Weight*>(p.panels), num_panels, p.in_features,
                  p.num_threads, [&](int64_t row, int64_t panel, const Vec(&sums)[kPanelVecs]) {
                    offer_panel<T>(p, panel, sums, found[row]);
                  });
  for (int64_t i = 0; i < num_rows; ++i) {
    p.values[rows[i]] = found[i].largest.value;
    p.columns[rows[i]] = found[i].largest.column;
  }
}

}  // namespace headway
