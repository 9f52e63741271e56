// Attention of tiles of query rows over their keys: flash-style online softmax, in float32.
#pragma once

#include <type_traits>

#include "attention_problem.h"
#include "cache_tile.h"
#include "product.h"
#include "softmax.h"

namespace headway {

// One thread's scratch memory, and the walk over a tile's keys. Prefill and decode are the same code with more or
// fewer rows, which makes a row's result independent of how its sequence was cut into steps.
template <class Activation, class Cache>
class TileAttention {
 public:
  static int64_t scratch_floats(const AttentionProblem& problem) {
    const int64_t padded_dim = round_up_to_vec(problem.head_dim);
    return (kTileRows + 2 * kTileKeys) * padded_dim + kTileRows * kLanes +
           2 * kTileRows * Softmax::floats_per_row(problem.head_dim);
  }

  TileAttention(const AttentionProblem& problem, float* scratch, float* workspace)
      : problem_(problem),
        padded_dim_(round_up_to_vec(problem.head_dim)),
        workspace_(workspace),
        queries_(scratch),
        keys_(queries_ + kTileRows * padded_dim_),
        values_(keys_ + kTileKeys * padded_dim_),
        lane_sums_(values_ + kTileKeys * padded_dim_),
        result_(lane_sums_ + kTileRows * kLanes),
        partition_(result_ + kTileRows * Softmax::floats_per_row(problem.head_dim)) {}

  // Writes the tiles' rows of `out`, or their partial results into the workspace.
  void run(const RowTile* begin, const RowTile* end) {
    next_->locate(problem_, *begin, begin->first_key);
    for (const RowTile* tile = begin; tile != end; ++tile) run_tile(*tile, tile + 1 == end ? nullptr : tile + 1);
  }

  // Divides by the softmax's denominators and writes the rows of `out`.
  void finish(const RowTile& tile, const Softmax& softmax) const {
    for (int64_t r = 0; r < tile.num_rows; ++r) {
      auto* out = static_cast<Activation*>(problem_.out) + row_offset(tile, r, problem_.out_stride);
      const float* values = softmax.values + r * softmax.stride;
      const float sum = softmax.sum[r];
      for_each_vec(problem_.head_dim, [=](int64_t i, auto lanes) { store(out + i, load(values + i) / sum, lanes); });
    }
  }

 private:
  void run_tile(const RowTile& tile, const RowTile* following) {
    Softmax result(tile.partial < 0 ? result_ : workspace_ + tile.partial, tile.num_rows, problem_.head_dim);
    Softmax partition(partition_, tile.num_rows, problem_.head_dim);
    load_queries(tile);
    int64_t end = partition_end(tile, tile.first_key);
    attend(tile, following, end, result);
    while (end < tile.last_key) {
      end = partition_end(tile, end);
      attend(tile, following, end, partition);
      result.merge(partition, tile.num_rows);
    }
    if (tile.partial < 0) finish(tile, result);
  }

  static int64_t partition_end(const RowTile& tile, int64_t position) {
    return std::min(tile.last_key, (position / kPartitionKeys + 1) * kPartitionKeys);
  }

  int64_t row_offset(const RowTile& tile, int64_t row, int64_t token_stride) const {
    const int64_t group = problem_.group_size();
    const int64_t token = problem_.query_start[tile.sequence] + (tile.first_row + row) / group;
    const int64_t head = tile.kv_head * group + (tile.first_row + row) % group;
    return token * token_stride + head * problem_.head_dim;
  }

  void load_queries(const RowTile& tile) {
    for (int64_t r = 0; r < tile.num_rows; ++r) {
      const auto* q = static_cast<const Activation*>(problem_.q) + row_offset(tile, r, problem_.q_stride);
      float* to = queries_ + r * padded_dim_;
      const float scale = static_cast<float>(problem_.scale);
      for_each_vec(problem_.head_dim, [=](int64_t i, auto lanes) { store(to + i, load(q + i, lanes) * scale); });
      const int64_t position = problem_.position(tile.sequence, (tile.first_row + r) / problem_.group_size());
      first_visible_[r] = problem_.first_visible(position);
      end_visible_[r] = position + 1;
    }
  }

  // The softmax over the keys from the next cache tile up to position `end`.
  void attend(const RowTile& tile, const RowTile* following, int64_t end, Softmax softmax) {
    softmax.reset(tile.num_rows);
    std::fill_n(lane_sums_, tile.num_rows * kLanes, 0.0f);
    do {
      advance(tile, following);
      find_keys();
      find_values();
      for (int64_t r = 0; r < tile.num_rows; r += kMaxRows) {
        switch (tile.num_rows - r) {
          case 1: attend_rows<1>(r, softmax); break;
          case 2: attend_rows<2>(r, softmax); break;
          case 3: attend_rows<3>(r, softmax); break;
          default: attend_rows<kMaxRows>(r, softmax);
        }
      }
      prefetch_.rest();
    } while (current_->start + kTileKeys < end);
    for (int64_t r = 0; r < tile.num_rows; ++r) softmax.sum[r] = sum(load(lane_sums_ + r * kLanes));
  }

  void advance(const RowTile& tile, const RowTile* following) {
    std::swap(current_, next_);
    const int64_t start = current_->start + kTileKeys;
    if (start < tile.last_key)
      next_->locate(problem_, tile, start);
    else if (following)
      next_->locate(problem_, *following, following->first_key);
    else
      next_->num_pieces = 0;
    prefetch_ = Prefetch<Cache>(*next_, problem_);
  }

  // key_columns_[c] + i * key_stride_ = dimension i of the keys [c * kLanes, (c + 1) * kLanes) of the current tile: in
  // the cache itself, if it holds whole registers of floats. Lanes outside [first, last) hold anything: they will be
  // masked.
  void find_keys() {
    const int begin = current_->first / kLanes, end = static_cast<int>(round_up_to_vec(current_->last)) / kLanes;
    if constexpr (std::is_same_v<Cache, float>) {
      if (problem_.block_size % kLanes == 0) {
        key_stride_ = problem_.block_size;
        const auto* piece = current_->pieces;
        for (int c = begin; c < end; ++c) {
          while (piece->begin + piece->count <= c * kLanes) ++piece;
          key_columns_[c] = piece->key + (c * kLanes - piece->begin);
        }
        std::fill_n(key_columns_, begin, key_columns_[begin]);
        return;
      }
    }
    key_stride_ = kTileKeys;
    for (int c = 0; c < end; ++c) key_columns_[c] = keys_ + c * kLanes;
    for (int p = 0; p < current_->num_pieces; ++p) pack_keys(current_->pieces[p]);
  }

  void pack_keys(const typename CacheTile<Cache>::Piece& piece) {
    for (int64_t i = 0; i < problem_.head_dim; ++i) {
      prefetch_.some(8);
      const Cache* from = piece.key + i * problem_.block_size;
      float* to = keys_ + i * kTileKeys + piece.begin;
      for_each_vec(piece.count, [=](int64_t n, auto lanes) { store(to + n, load(from + n, lanes), lanes); });
    }
  }

  // value_rows_[n] = value n of the current tile as padded float32: in the cache itself, if that is what it holds.
  void find_values() {
    for (int p = 0; p < current_->num_pieces; ++p) {
      const auto& piece = current_->pieces[p];
      for (int k = 0; k < piece.count; ++k) {
        const Cache* from = piece.value + k * problem_.head_dim;
        const int n = piece.begin + k;
        if constexpr (std::is_same_v<Cache, float>) {
          value_rows_[n] = from;
          if (padded_dim_ == problem_.head_dim) continue;
        }
        float* to = values_ + n * padded_dim_;
        for_each_vec(problem_.head_dim, [=](int64_t i, auto lanes) { store(to + i, load(from + i, lanes)); });
        value_rows_[n] = to;
      }
    }
  }

  // Rows [r, r + kRows) against the current tile.
  template <int kRows>
  void attend_rows(int64_t r, Softmax softmax) {
    const int begin = within_tile(first_visible_[r]), end = within_tile(end_visible_[r + kRows - 1]);
    if (begin >= end) return;
    alignas(64) float scores[kRows][kTileKeys];
    const int num_vecs = static_cast<int>(round_up_to_vec(end)) / kLanes;
    multiply<kRows, kTileKeys / kLanes>(
        queries_ + r * padded_dim_, padded_dim_, static_cast<int>(problem_.head_dim),
        [this](int i, int c) {
          if (c == 0) prefetch_.some(4);
          return load(key_columns_[c] + i * key_stride_);
        },
        num_vecs,
        [&](int row, int n, Vec score) { store(&scores[row][n], score); });
    float rescale[kRows];
    for (int row = 0; row < kRows; ++row)
      rescale[row] = exponentiate(scores[row], num_vecs, within_tile(first_visible_[r + row]),
                                  within_tile(end_visible_[r + row]), softmax.max[r + row],
                                  lane_sums_ + (r + row) * kLanes);
    multiply<kRows, 8>(
        &scores[0][begin], kTileKeys, end - begin,
        [this, begin](int n, int c) {
          if (c == 0) prefetch_.some(4);
          return load(value_rows_[begin + n] + c * kLanes);
        },
        static_cast<int>(padded_dim_) / kLanes, [&](int row, int i, Vec sum) {
          float* value = softmax.values + (r + row) * softmax.stride + i;
          store(value, load(value) * rescale[row] + sum);
        });
  }

  // A context position as an index into the current tile, cut to the keys it has.
  int within_tile(int64_t position) const {
    return static_cast<int>(std::clamp<int64_t>(position - current_->start, current_->first, current_->last));
  }

  const AttentionProblem& problem_;
  const int64_t padded_dim_;
  float* workspace_;
  float *queries_, *keys_, *values_, *lane_sums_, *result_, *partition_;  // in the scratch memory
  CacheTile<Cache> tiles_[2];
  CacheTile<Cache>*current_ = &tiles_[0], *next_ = &tiles_[1];
  Prefetch<Cache> prefetch_;  // of next_
  const float *key_columns_[kTileKeys / kLanes], *value_rows_[kTileKeys];
  int64_t key_stride_ = kTileKeys;
  int64_t first_visible_[kTileRows], end_visible_[kTileRows];
};

}  // namespace headway
