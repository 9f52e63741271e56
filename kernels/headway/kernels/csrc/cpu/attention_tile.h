// Attention of tiles of query rows over their keys: flash-style online softmax, in float32.
#pragma once

#include <cmath>
#include <cstring>
#include <type_traits>

#include "abi.h"
#include "attention_problem.h"
#include "cache_tile.h"
#include "product.h"
#include "softmax.h"

namespace headway {

// The keys of a tile as the right side of a product: row i is dimension i of them.
template <class T>
struct KeyMatrix {
  const T* const* starts;
  int64_t stride;

  template <int kColumns>
  auto columns(int column) const {
    struct Rows {
      const T* starts[kColumns];
      int64_t stride;

      auto operator()(int i) const {
        return [this, offset = i * stride](int c) { return load(starts[c] + offset); };
      }
    } rows;
    std::copy_n(starts + column, kColumns, rows.starts);
    rows.stride = stride;
    return rows;
  }
};

// The same for its values: row n is value n.
template <class T>
struct ValueMatrix {
  const T* const* rows;

  template <int kColumns>
  auto columns(int column) const {
    return [rows = rows, column](int n) {
      return [row = rows[n] + column * kLanes](int c) { return load(row + c * kLanes); };
    };
  }
};

// One thread's scratch memory, and the walk over a tile's keys. Prefill and decode are the same code with more or
// fewer rows, which makes a row's result independent of how its sequence was cut into steps.
template <class Activation, class Cache>
class TileAttention {
 public:
  static int64_t scratch_floats(const AttentionProblem& problem) {
    const int64_t padded_dim = round_up_to_vec(problem.head_dim);
    return kTileRows * kQueryStride + 2 * kTileKeys * padded_dim + kTileRows * kLanes +
           2 * kTileRows * Softmax::floats_per_row(problem.head_dim);
  }

  // `sharers`: the plan's.
  TileAttention(const AttentionProblem& problem, const Sharer* sharers, float* scratch, float* workspace)
      : problem_(problem),
        sharers_(sharers),
        padded_dim_(round_up_to_vec(problem.head_dim)),
        workspace_(workspace),
        queries_(scratch),
        keys_(queries_ + kTileRows * kQueryStride),
        values_(keys_ + kTileKeys * padded_dim_),
        lane_sums_(values_ + kTileKeys * padded_dim_),
        result_(lane_sums_ + kTileRows * kLanes),
        partition_(result_ + kTileRows * Softmax::floats_per_row(problem.head_dim)) {}

  // Writes the tiles' rows of `out`, or their partial results into the workspace.
  void run(const RowTile* begin, const RowTile* end) {
    next_->locate(problem_, *begin, begin->first_key);
    for (const RowTile* tile = begin; tile != end; ++tile) run_tile(*tile, tile + 1 == end ? nullptr : tile + 1);
  }

  // Divides by the softmax's denominators and writes the rows of `out` and `lse`.
  void finish(const RowTile& tile, const Softmax& softmax) const {
    with_dtype(problem_.out_dtype, [&](auto type) {
      using Out = decltype(type);
      for (int64_t r = 0; r < tile.num_rows; ++r) {
        auto* out = static_cast<Out*>(problem_.out) +
                    row_offset(tile, r, problem_.out_token_stride, problem_.out_head_stride);
        const float* values = softmax.values + r * softmax.stride;
        const float sum = softmax.sum[r] == 0 ? 1.0f : softmax.sum[r];  // a row that saw no key: zeros
        for_each_vec(problem_.head_dim, [=](int64_t i, auto lanes) { store(out + i, load(values + i) / sum, lanes); });
      }
    });
    if (!problem_.lse) return;
    for (int64_t r = 0; r < tile.num_rows; ++r)
      problem_.lse[row_offset(tile, r, problem_.lse_token_stride, problem_.lse_head_stride)] =
          softmax.max[r] + std::log(softmax.sum[r]);
  }

  // Writes rows that see no key.
  void finish_blank(const RowTile& tile) const {
    Softmax nothing(result_, tile.num_rows, problem_.head_dim);
    nothing.reset(tile.num_rows);
    finish(tile, nothing);
  }

 private:
  // Floats from one row to the next: room for the longest head, and no two rows on the same cache lines' sets. That it is
  // known at compile time saves registers.
  static constexpr int kQueryStride = 512 + 16;

  void run_tile(const RowTile& tile, const RowTile* following) {
    Softmax result(tile.partial < 0 ? result_ : workspace_ + tile.partial, tile.num_rows, problem_.head_dim);
    Softmax partition(partition_, tile.num_rows, problem_.head_dim);
    load_queries(tile);
    if (tile.lanes < 0) {
      result.reset(tile.num_rows);
      std::fill_n(lane_sums_, tile.num_rows * kLanes, 0.0f);
    } else {
      std::copy_n(workspace_ + tile.lanes, tile.num_rows * kLanes, lane_sums_);
    }
    int64_t end = partition_end(tile, tile.first_key);
    attend(tile, following, end, result);
    if (tile.first_sharer >= 0) return hand_out(tile, result);
    while (end < tile.last_key) {
      end = partition_end(tile, end);
      partition.reset(tile.num_rows);
      std::fill_n(lane_sums_, tile.num_rows * kLanes, 0.0f);
      attend(tile, following, end, partition);
      result.merge(partition, tile.num_rows);
    }
    if (tile.is_whole) finish(tile, result);
  }

  // The sharers' results, each to its place.
  void hand_out(const RowTile& tile, const Softmax& all) const {
    const int64_t num_rows = problem_.group_size();
    const Sharer* sharer = sharers_ + tile.first_sharer;
    for (int64_t r = 0; r < tile.num_rows; r += num_rows, ++sharer) {
      Softmax own(workspace_ + sharer->partial, num_rows, problem_.head_dim);
      std::copy_n(all.values + r * all.stride, num_rows * all.stride, own.values);
      std::copy_n(all.max + r, num_rows, own.max);
      std::copy_n(all.sum + r, num_rows, own.sum);
      if (sharer->lanes >= 0) std::copy_n(lane_sums_ + r * kLanes, num_rows * kLanes, workspace_ + sharer->lanes);
    }
  }

  static int64_t partition_end(const RowTile& tile, int64_t key) {
    return std::min(tile.last_key, (key / kPartitionKeys + 1) * kPartitionKeys);
  }

  int64_t row_offset(const RowTile& tile, int64_t row, int64_t token_stride, int64_t head_stride) const {
    const int64_t group = problem_.group_size();
    const int64_t place = (tile.first_row + row) / group;
    const int64_t token = tile.first_sharer < 0 ? problem_.query_start[tile.sequence] + place
                                                : problem_.query_start[sharers_[tile.first_sharer + place].sequence];
    const int64_t head = tile.kv_head * group + (tile.first_row + row) % group;
    return token * token_stride + head * head_stride;
  }

  void load_queries(const RowTile& tile) {
    for (int64_t r = 0; r < tile.num_rows; ++r) {
      const auto* q =
          static_cast<const Activation*>(problem_.q) + row_offset(tile, r, problem_.q_stride, problem_.head_dim);
      float* to = queries_ + r * kQueryStride;
      const float scale = static_cast<float>(problem_.scale);
      for_each_vec(problem_.head_dim, [=](int64_t i, auto lanes) { store(to + i, load(q + i, lanes) * scale); });
      visible_[r] = tile.first_sharer < 0
                        ? problem_.visible(tile.sequence, (tile.first_row + r) / problem_.group_size())
                        : KeySpan{tile.first_key, tile.last_key};
    }
  }

  // The current tile's keys and values: key_columns[c] + i * key_stride is dimension i of the keys
  // [c * kLanes, (c + 1) * kLanes), value_rows[n] value n. Keys outside [first, last) can be anything: they are masked.
  template <class T>
  struct Source {
    const T *key_columns[kTileKeys / kLanes], *value_rows[kTileKeys];
    int64_t key_stride;

    KeyMatrix<T> keys() const { return {key_columns, key_stride}; }
    ValueMatrix<T> values(int first) const { return {value_rows + first}; }
  };

  // Takes the keys from the next cache tile up to `end` into the softmax, whose sums are those of the lanes until then.
  void attend(const RowTile& tile, const RowTile* following, int64_t end, Softmax softmax) {
    const bool reads_in_place = can_read_in_place(tile);
    do {
      advance(tile, following);
      if (!reads_in_place)
        attend_tile(tile, packed(), softmax);
      else if (problem_.block_size % kLanes == 0)
        attend_tile(tile, in_place(), softmax);
      else
        attend_tile(tile, gathered(), softmax);
      values_ahead_.rest();
      keys_ahead_.rest();
    } while (current_->start + kTileKeys < end);
    for (int64_t r = 0; r < tile.num_rows; ++r) softmax.sum[r] = sum(load(lane_sums_ + r * kLanes));
  }

  template <class T>
  void attend_tile(const RowTile& tile, const Source<T>& source, Softmax softmax) {
    for (int64_t r = 0; r < tile.num_rows; r += kMaxRows) {
      switch (tile.num_rows - r) {
        case 1: attend_rows<1>(r, source, softmax); break;
        case 2: attend_rows<2>(r, source, softmax); break;
        case 3: attend_rows<3>(r, source, softmax); break;
        default: attend_rows<kMaxRows>(r, source, softmax);
      }
    }
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
    values_ahead_ = {*current_, problem_};
    keys_ahead_ = {*next_, problem_};
  }

  // Values can be loaded where they lie, and keys where a block has whole registers of them or after they were laid side
  // by side; what must be widened, only if no later rows want it too.
  bool can_read_in_place(const RowTile& tile) const {
    const bool has_fitting_blocks = problem_.block_size % kLanes == 0 || kLanes % problem_.block_size == 0;
    return has_fitting_blocks && problem_.head_dim % kLanes == 0 &&
           (std::is_same_v<Cache, float> || tile.num_rows <= kMaxRows);
  }

  Source<Cache> in_place() const {
    Source<Cache> source;
    source.key_stride = problem_.block_size;
    for (int p = 0; p < current_->num_pieces; ++p) {
      const auto& piece = current_->pieces[p];
      for (int c = piece.begin / kLanes; c * kLanes < piece.begin + piece.count; ++c)
        source.key_columns[c] = piece.key + (c * kLanes - piece.begin);
    }
    const int begin = current_->first / kLanes;
    std::fill_n(source.key_columns, begin, source.key_columns[begin]);
    point_to_values(source);
    return source;
  }

  void point_to_values(Source<Cache>& source) const {
    for (int p = 0; p < current_->num_pieces; ++p) {
      const auto& piece = current_->pieces[p];
      for (int n = 0; n < piece.count; ++n)
        source.value_rows[piece.begin + n] = piece.value + n * problem_.head_dim;
    }
  }

  // The keys of blocks that are narrower than a register, side by side in the scratch memory.
  Source<Cache> gathered() {
    Source<Cache> source;
    auto* keys = reinterpret_cast<Cache*>(keys_);
    source.key_stride = kTileKeys;
    for (int c = 0; c < kTileKeys / kLanes; ++c) source.key_columns[c] = keys + c * kLanes;
    gather_blocks<kLanes / 2>(keys);
    point_to_values(source);
    return source;
  }

  // Of `kBlock` tokens, or fewer. All of a block is copied, whichever of its keys are attended to.
  template <int kBlock>
  void gather_blocks(Cache* keys) {
    if constexpr (kBlock > 1)
      if (problem_.block_size < kBlock) return gather_blocks<kBlock / 2>(keys);
    constexpr int kUnit = kBlock * sizeof(Cache) / sizeof(int32_t);  // lanes that a block's keys take in one dimension
    if constexpr (kUnit > 1 && kUnit < kLanes)
      if (current_->first < kBlock) return gather_runs<kBlock, kUnit>(keys);
    for (int p = 0; p < current_->num_pieces; ++p) {
      const Cache* from = whole_block<kBlock>(p);
      Cache* to = keys + current_->pieces[p].begin / kBlock * kBlock;
      for (int64_t i = 0; i < problem_.head_dim; ++i) {
        if (i % (kTileKeys / kBlock) == 0) values_ahead_.some(4);
        std::memcpy(to + i * kTileKeys, from + i * kBlock, kBlock * sizeof(Cache));
      }
    }
  }

  // As many blocks at a time as lie side by side in a register, from the tile's start on.
  template <int kBlock, int kUnit>
  void gather_runs(Cache* keys) {
    constexpr int kRun = kLanes / kUnit;
    for (int p = 0; p < current_->num_pieces; p += kRun) {
      const Cache* from[kRun];
      for (int r = 0; r < kRun; ++r) from[r] = whole_block<kBlock>(std::min(p + r, current_->num_pieces - 1));
      for (int64_t i = 0; i < problem_.head_dim; i += kRun) {
        values_ahead_.some(kRun);
        IntVec rows[kRun];
        for (int r = 0; r < kRun; ++r) std::memcpy(&rows[r], from[r] + i * kBlock, sizeof(IntVec));
        transpose_units<kUnit>(rows);
        for (int r = 0; r < kRun; ++r) std::memcpy(keys + (i + r) * kTileKeys + p * kBlock, &rows[r], sizeof(IntVec));
      }
    }
  }

  // The first key of the block that a piece is of.
  template <int kBlock>
  const Cache* whole_block(int piece) const {
    return current_->pieces[piece].key - current_->pieces[piece].begin % kBlock;
  }

  // Copies of both as float32 in the scratch memory, values padded to whole registers.
  Source<float> packed() {
    Source<float> source;
    source.key_stride = kTileKeys;
    for (int c = 0; c < kTileKeys / kLanes; ++c) source.key_columns[c] = keys_ + c * kLanes;
    for (int p = 0; p < current_->num_pieces; ++p) {
      const auto& piece = current_->pieces[p];
      for (int64_t i = 0; i < problem_.head_dim; ++i) {
        values_ahead_.some(4);
        copy_row(piece.key + i * problem_.block_size, keys_ + i * kTileKeys + piece.begin, piece.count);
      }
      for (int n = piece.begin; n < piece.begin + piece.count; ++n) {
        const Cache* from = piece.value + (n - piece.begin) * problem_.head_dim;
        float* to = values_ + n * padded_dim_;
        for_each_vec(problem_.head_dim, [=](int64_t i, auto lanes) { store(to + i, load(from + i, lanes)); });
        source.value_rows[n] = to;
      }
    }
    return source;
  }

  // Rows [r, r + kRows) against the current tile.
  template <int kRows, class T>
  void attend_rows(int64_t r, const Source<T>& source, Softmax softmax) {
    int firsts[kRows], ends[kRows];
    for (int row = 0; row < kRows; ++row) {
      firsts[row] = within_tile(visible_[r + row].first);
      ends[row] = within_tile(visible_[r + row].end);
    }
    const int begin = *std::min_element(firsts, firsts + kRows), end = *std::max_element(ends, ends + kRows);
    if (begin >= end) return;
    alignas(64) float scores[kRows][kTileKeys];
    const int num_vecs = static_cast<int>(round_up_to_vec(end)) / kLanes;
    multiply<kRows, kTileKeys / kLanes, kQueryStride>(
        queries_ + r * kQueryStride, static_cast<int>(problem_.head_dim), source.keys(), num_vecs,
        [this] { values_ahead_.some(kStepsBetween * 4); },
        [&](int row, int n, Vec score) { store(&scores[row][n], score); });
    float rescale[kRows];
    exponentiate(scores, num_vecs, firsts, ends, softmax.max + r, lane_sums_ + r * kLanes, rescale);
    multiply<kRows, 8, kTileKeys>(
        &scores[0][begin], end - begin, source.values(begin), static_cast<int>(padded_dim_) / kLanes,
        [this] { keys_ahead_.some(kStepsBetween * 4); },
        [&](int row, int i, Vec sum) {
          float* value = softmax.values + (r + row) * softmax.stride + i;
          store(value, load(value) * rescale[row] + sum);
        });
  }

  // A key's place as an index into the current tile, cut to the keys it has.
  int within_tile(int64_t key) const {
    return static_cast<int>(std::clamp<int64_t>(key - current_->start, current_->first, current_->last));
  }

  const AttentionProblem& problem_;
  const Sharer* sharers_;
  const int64_t padded_dim_;
  float* workspace_;
  float *queries_, *keys_, *values_, *lane_sums_, *result_, *partition_;  // in the scratch memory
  CacheTile<Cache> tiles_[2];
  CacheTile<Cache>*current_ = &tiles_[0], *next_ = &tiles_[1];
  // Half a tile is asked for while the other half is computed with: more would not fit into a first-level cache.
  Prefetch<Cache, Side::kValues> values_ahead_;  // of current_
  Prefetch<Cache, Side::kKeys> keys_ahead_;      // of next_
  KeySpan visible_[kTileRows];  // by each of the tile's rows
};

}  // namespace headway
