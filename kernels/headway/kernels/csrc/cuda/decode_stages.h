// The keys of a work item on their way into shared memory, in stages that a warp copies ahead and has to itself.
#pragma once

#include "decode_problem.h"

namespace headway {

// Keys and their values as they lie in the cache, heads of up to kHeadDim numbers. Each row is 16 bytes longer, so that
// a matrix load finds its eight rows in different banks.
template <class Cache, int kHeadDim>
struct alignas(16) Stage {
  static constexpr int kKeys = 16;
  static constexpr int kRowBytes = kHeadDim * static_cast<int>(sizeof(Cache));
  static constexpr int kPitch = kRowBytes + 16;

  unsigned char keys[kKeys][kPitch], values[kKeys][kPitch];
};

// Of every kWarps * 16 keys of a work item, a warp copies 16. Places in the cache are counted in pieces of 16 bytes, of
// which 32 bits count enough for 64 GiB: cuda/decode.py sees to that.
template <class Cache, int kHeadDim, int kStages>
struct StageCopies {
  using Stage = headway::Stage<Cache, kHeadDim>;
  static constexpr int kKeys = Stage::kKeys;
  static constexpr int kPieces = Stage::kRowBytes / 16;  // of a row
  static constexpr int kRows = 32 / kPieces;             // that a warp copies at a time, each lane a piece
  static_assert(32 % kPieces == 0);

  const ScoreOptions& options;
  const int32_t* const blocks;  // of the item's sequence
  const int end_key;
  const uint32_t first_slot, row_pieces;          // where the KV head's rows begin in a block, and their size
  const uint32_t k_block_pieces, v_block_pieces;  // from a block to the next
  const char *const k_pieces, *const v_pieces;    // of the lane in the first row of all
  unsigned char* const to;                        // its piece of the first row that it copies in the first stage
  const int row;                                  // which that is
  const bool has_piece;
  int next_key;    // the first of the next stage to be copied
  int next_stage;  // of `stages`
  int block;       // that key lane % 16 of the next stage lies in
  uint32_t slot;   // and where

  __device__ StageCopies(const DecodeProblem& problem, const ScoreOptions& options, const WorkItem& item, int kv_head,
                         Stage* stages, int first_key)
      : options(options),
        blocks(problem.block_tables + item.sequence * problem.block_tables_stride),
        end_key(item.end_key),
        first_slot(static_cast<uint32_t>(kv_head) * options.block_size.divisor),
        row_pieces(static_cast<uint32_t>(options.head_dim) * sizeof(Cache) / 16),
        k_block_pieces(static_cast<uint32_t>(problem.k_block_stride * sizeof(Cache) / 16)),
        v_block_pieces(static_cast<uint32_t>(problem.v_block_stride * sizeof(Cache) / 16)),
        k_pieces(static_cast<const char*>(problem.k_cache) + lane_index() % kPieces * 16),
        v_pieces(static_cast<const char*>(problem.v_cache) + lane_index() % kPieces * 16),
        to(&stages[0].keys[lane_index() / kPieces][lane_index() % kPieces * 16]),
        row(lane_index() / kPieces),
        has_piece(static_cast<uint32_t>(lane_index() % kPieces) < row_pieces),
        next_key(first_key),
        next_stage(0),
        block(0),
        slot(0) {
    find_block();
  }

  // The block's number arrives while the stage before is attended to.
  __device__ __forceinline__ void find_block() {
    const int key = next_key + lane_index() % kKeys;
    if (key >= end_key) return;
    const int index = options.block_size.quotient(key);
    block = blocks[index];
    slot = static_cast<uint32_t>(key) - static_cast<uint32_t>(index) * options.block_size.divisor;
  }

  // Always commits a group, so that groups count stages.
  __device__ __forceinline__ void start_next() {
    if (next_key < end_key) copy_rows();
    commit_copies();
    next_stage = next_stage + 1 == kStages ? 0 : next_stage + 1;
    next_key += kWarps * kKeys;
    find_block();
  }

  // Rows behind the last key, and pieces that heads have not, become zeros.
  __device__ __forceinline__ void copy_rows() const {
    const uint32_t within = (first_slot + slot) * row_pieces;
    const uint32_t k_place = static_cast<uint32_t>(block) * k_block_pieces + within;
    const uint32_t v_place = static_cast<uint32_t>(block) * v_block_pieces + within;
    unsigned char* const keys = to + next_stage * static_cast<int>(sizeof(Stage));
    unsigned char* const values = keys + sizeof(Stage::keys);
#pragma unroll
    for (int first = 0; first < kKeys; first += kRows) {
      const uint32_t k_at = __shfl_sync(kAllLanes, k_place, first + row);
      const uint32_t v_at = __shfl_sync(kAllLanes, v_place, first + row);
      const bool is_valid = has_piece && next_key + first + row < end_key;
      copy_async<16>(keys + first * Stage::kPitch, k_pieces + uint64_t{k_at} * 16, is_valid);
      copy_async<16>(values + first * Stage::kPitch, v_pieces + uint64_t{v_at} * 16, is_valid);
    }
  }
};

}  // namespace headway
