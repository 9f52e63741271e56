// Where the paged cache holds a run of a sequence's keys, and how it is fetched ahead.
#pragma once

#include "attention_problem.h"

namespace headway {

// Keys start + n of one sequence and KV head, for n in [first, last) within a tile. In a block, keys lie
// transposed, [head_dim, block_size], and values as rows, [block_size, head_dim].
template <class Cache>
struct CacheTile {
  // Keys that lie in one block. `key` and `value` point to the first of them.
  struct Piece {
    const Cache *key, *value;
    int begin, count;  // of the tile's keys
  };

  int64_t start = 0;
  int first = 0, last = 0;
  int num_pieces = 0;
  Piece pieces[kTileKeys];

  // The tile that holds `key`, cut to what the rows attend to.
  void locate(const AttentionProblem& problem, const RowTile& rows, int64_t key) {
    start = key / kTileKeys * kTileKeys;
    first = static_cast<int>(std::max<int64_t>(rows.first_key - start, 0));
    last = static_cast<int>(std::min<int64_t>(rows.last_key - start, kTileKeys));
    const int64_t head_offset = rows.kv_head * problem.block_size * problem.head_dim;
    const auto* keys = static_cast<const Cache*>(problem.k_cache) + head_offset;
    const auto* values = static_cast<const Cache*>(problem.v_cache) + head_offset;
    const int32_t* block = problem.block_table(rows.sequence) + (start + first) / problem.block_size;
    int64_t slot = (start + first) % problem.block_size;
    num_pieces = 0;
    for (int n = first; n < last; ++block, slot = 0) {
      const int count = static_cast<int>(std::min<int64_t>(problem.block_size - slot, last - n));
      pieces[num_pieces++] = {keys + *block * problem.k_block_stride + slot,
                              values + *block * problem.v_block_stride + slot * problem.head_dim, n, count};
      n += count;
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
  Prefetch(const CacheTile<Cache>& tile, const AttentionProblem& problem)
      : piece_(tile.pieces),
        end_(tile.pieces + tile.num_pieces),
        head_dim_(problem.head_dim),
        block_size_(problem.block_size),
        rows_per_line_(std::max<int64_t>(1, kLine / problem.block_size)) {}

  // Lines of keys and values in turns. A piece has as many elements of either.
  void some(int num_lines) {
    for (; num_lines > 0 && piece_ != end_; num_lines -= 2) {
      __builtin_prefetch(piece_->key + row_ * block_size_ + column_, /*write=*/0, /*locality=*/2);
      __builtin_prefetch(piece_->value + offset_, /*write=*/0, /*locality=*/2);
      offset_ += kLine;
      column_ += kLine;
      if (column_ >= piece_->count) {
        column_ = 0;
        row_ += rows_per_line_;
      }
      if (row_ >= head_dim_) {
        row_ = offset_ = 0;
        ++piece_;
      }
    }
  }

  void rest() {
    while (piece_ != end_) some(2);
  }

 private:
  static constexpr int64_t kLine = 64 / sizeof(Cache);

  const typename CacheTile<Cache>::Piece *piece_ = nullptr, *end_ = nullptr;
  int64_t head_dim_ = 0, block_size_ = 0, rows_per_line_ = 1;  // of keys
  int64_t row_ = 0, column_ = 0, offset_ = 0;
};

}  // namespace headway
