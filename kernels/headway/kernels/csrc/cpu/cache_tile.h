// Where the paged cache holds a run of consecutive context positions, and how it is fetched ahead.
#pragma once

#include "attention_problem.h"

namespace headway {

// Context positions start + n of one sequence and KV head, for n in [first, last) within a tile.
template <class Cache>
struct CacheTile {
  struct Slot {
    const Cache *key, *value;
  };

  int64_t start = 0;
  int first = 0, last = 0;
  Slot slots[kTileKeys];

  // The tile that holds `position`, cut to what the rows attend to.
  void locate(const AttentionProblem& problem, const RowTile& rows, int64_t position) {
    start = position / kTileKeys * kTileKeys;
    first = static_cast<int>(std::max<int64_t>(rows.first_key - start, 0));
    last = static_cast<int>(std::min<int64_t>(rows.last_key - start, kTileKeys));
    const int64_t head_offset = rows.kv_head * problem.block_size * problem.head_dim;
    const auto* keys = static_cast<const Cache*>(problem.k_cache) + head_offset;
    const auto* values = static_cast<const Cache*>(problem.v_cache) + head_offset;
    const int32_t* block = problem.block_table(rows.sequence) + (start + first) / problem.block_size;
    int64_t slot = (start + first) % problem.block_size;
    for (int n = first; n < last; ++n) {
      slots[n] = {keys + *block * problem.k_block_stride + slot * problem.head_dim,
                  values + *block * problem.v_block_stride + slot * problem.head_dim};
      if (++slot == problem.block_size) {
        slot = 0;
        ++block;
      }
    }
  }
};

// Asks for the next tile while another one is computed: blocks lie anywhere, so the hardware cannot foresee them.
// A few lines at a time, between the arithmetic, keep the memory busy without blocking; they go to the second-level
// cache, which has more requests in flight than the first.
template <class Cache>
class Prefetch {
 public:
  Prefetch() = default;
  Prefetch(const CacheTile<Cache>& tile, int64_t head_dim)
      : slot_(tile.slots + tile.first), end_(tile.slots + tile.last), head_dim_(head_dim) {}

  void some(int num_lines) {
    for (; num_lines > 0 && slot_ != end_; num_lines -= 2) {
      __builtin_prefetch(slot_->key + offset_, /*write=*/0, /*locality=*/2);
      __builtin_prefetch(slot_->value + offset_, /*write=*/0, /*locality=*/2);
      offset_ += kLine;
      if (offset_ >= head_dim_) {
        offset_ = 0;
        ++slot_;
      }
    }
  }

  void rest() {
    while (slot_ != end_) some(2);
  }

 private:
  static constexpr int64_t kLine = 64 / sizeof(Cache);

  const typename CacheTile<Cache>::Slot *slot_ = nullptr, *end_ = nullptr;
  int64_t head_dim_ = 0, offset_ = 0;
};

}  // namespace headway
