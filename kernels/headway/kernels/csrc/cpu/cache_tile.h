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

enum class Side { kKeys, kValues };

// Asks for a tile's keys or values while something else is computed: blocks lie anywhere, so the hardware cannot foresee
// them. A few lines at a time, between the arithmetic, keep the memory busy without blocking.
template <class Cache, Side kSide>
class Prefetch {
 public:
  Prefetch() = default;
  Prefetch(const CacheTile<Cache>& tile, const AttentionProblem& problem)
      : piece_(tile.pieces),
        end_(tile.pieces + tile.num_pieces),
        head_dim_(problem.head_dim),
        stride_(kSide == Side::kKeys ? problem.block_size : problem.head_dim),
        rows_per_line_(std::max<int64_t>(1, kLine / stride_)) {}

  void some(int num_lines) {
    for (; num_lines > 0 && piece_ != end_; --num_lines) {
      const Cache* start = kSide == Side::kKeys ? piece_->key : piece_->value;
      __builtin_prefetch(start + row_ * stride_ + column_, /*write=*/0, /*locality=*/2);
      column_ += kLine;
      if (column_ >= (kSide == Side::kKeys ? piece_->count : head_dim_)) {
        column_ = 0;
        row_ += rows_per_line_;
      }
      if (row_ >= (kSide == Side::kKeys ? head_dim_ : piece_->count)) {
        row_ = 0;
        ++piece_;
      }
    }
  }

  void rest() {
    while (piece_ != end_) some(1);
  }

 private:
  static constexpr int64_t kLine = 64 / sizeof(Cache);

  const typename CacheTile<Cache>::Piece *piece_ = nullptr, *end_ = nullptr;
  int64_t head_dim_ = 0, stride_ = 1, rows_per_line_ = 1;
  int64_t row_ = 0, column_ = 0;  // of the piece
};

}  // namespace headway
