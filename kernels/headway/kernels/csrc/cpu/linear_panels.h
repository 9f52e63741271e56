// The panels of a packed weight, and the tasks of a product with them.
#pragma once

#include <algorithm>

#include "abi.h"
#include "matrix_unit.h"
#include "team.h"

namespace headway {

// Calls body(Weight{}).
template <class Body>
inline void with_weight_dtype(int64_t dtype, Body body) {
  if (dtype == kInt8)
    body(int8_t{});
  else
    with_dtype(dtype, body);
}

template <class Weight>
inline int64_t panel_size(int64_t in_features) {
  constexpr int64_t kStep = kInterleaved<Weight>;
  return (in_features + kStep - 1) / kStep * kStep * kPanel;
}

// Multiply-adds below which a second thread costs more than it saves.
constexpr int64_t kParallelProducts = 1 << 17;

// Threads take tasks as they get free, so that one which the system holds up does not hold up the others: there are
// several for each. A task's rows, and the panels that it shares with the next tasks, stay in a core's own cache.
constexpr int64_t kTasksPerThread = 8, kTaskRows = 96, kTaskFloats = 1 << 17;

// body(panel, first_row, last_row, following) until every row has met every panel. `following`: the panel that the thread
// will probably take next, or one that does not exist. Rows are cut where tiles of kRows end.
template <int64_t kRows, class Body>
inline void for_each_panel(int64_t num_rows, int64_t num_panels, int64_t in_features, int64_t num_threads,
                           const Body& body) {
  const int64_t num_tiles = (num_rows + kRows - 1) / kRows, num_blocks = (num_rows + kTaskRows - 1) / kTaskRows;
  const int64_t even_share = num_panels * num_blocks / (num_threads * kTasksPerThread);
  const int64_t most_panels = std::max<int64_t>(1, kTaskFloats / (kPanel * in_features));
  const int64_t task_panels = std::clamp<int64_t>(even_share, 1, most_panels);
  const int64_t num_groups = (num_panels + task_panels - 1) / task_panels;
  const bool is_parallel = num_rows * in_features * num_panels * kPanel >= kParallelProducts;
  if (!is_parallel) num_threads = 1;
  for_each_task(num_groups * num_blocks, num_threads, [&](int64_t task) {
    // Tasks that follow each other share panels, which are then read from memory once.
    const int64_t group = task / num_blocks, block = task % num_blocks;
    const int64_t first_row = num_tiles * block / num_blocks * kRows;
    const int64_t last_row = std::min(num_rows, num_tiles * (block + 1) / num_blocks * kRows);
    const int64_t end = std::min(num_panels, (group + 1) * task_panels);
    // Behind the group's last panel: threads take turns, and only the last blocks of a group lead on to another.
    const int64_t next_group = group + (num_blocks == 1 ? num_threads : 1);
    const int64_t beyond = block + num_threads >= num_blocks ? next_group * task_panels : num_panels;
    for (int64_t panel = group * task_panels; panel < end; ++panel)
      body(panel, first_row, last_row, panel + 1 < end ? panel + 1 : beyond);
  });
}

// tile(top, end) for tiles of at most kRows rows: as many as go into the matrix unit, or of about equal height.
template <int64_t kRows, class Tile>
inline void for_each_tile(int64_t first_row, int64_t last_row, const Tile& tile) {
  const int64_t num_rows = last_row - first_row, num_tiles = (num_rows + kRows - 1) / kRows;
  for (int64_t i = 0; i < num_tiles; ++i)
    if (kRows == kUnitRows)
      tile(first_row + kRows * i, std::min(first_row + kRows * (i + 1), last_row));
    else
      tile(first_row + num_rows * i / num_tiles, first_row + num_rows * (i + 1) / num_tiles);
}

// finish(row, panel, sums) for every row of x and every panel, with their products in the order of the panel's features.
template <class X, class Weight, class Finish>
inline void multiply_panels(const X* x, int64_t x_stride, int64_t num_rows, const Weight* panels, int64_t num_panels,
                            int64_t depth, int64_t num_threads, const Finish& finish) {
  constexpr int64_t kRows = kRowsAtOnce<X, Weight>;
  const int64_t size = panel_size<Weight>(depth);
  for_each_panel<kRows>(
      num_rows, num_panels, depth, num_threads,
      [&](int64_t panel, int64_t first_row, int64_t last_row, int64_t following) {
        Ahead ahead;
        if (following < num_panels) ahead = Ahead::of(panels + following * size, size);
        const auto opened = open_panel<X>(panels + panel * size, depth, last_row - first_row, ahead);
        MatrixUnit unit;
        for_each_tile<kRows>(first_row, last_row, [&](int64_t top, int64_t end) {
          multiply_panel_rows(unit, end - top, x + top * x_stride, x_stride, opened, depth, ahead,
                              [&](int64_t r, const Vec(&sums)[kPanelVecs]) { finish(top + r, panel, sums); });
        });
      });
}

}  // namespace headway
