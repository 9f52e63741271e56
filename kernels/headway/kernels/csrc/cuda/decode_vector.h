// Decode attention on the CUDA cores, for caches in float32 and queries of another type than the cache, which are for
// checks and small models: flash-decoding, where every warp has keys of its own.
#pragma once

#include "warp_results.h"

namespace headway {

// A warp holds one head, eight dimensions a lane, and goes through its keys alone: each lane copies into shared memory
// what it will read itself, several stages ahead, so that nobody waits for another before the end. Heads of fewer than
// 256 numbers leave lanes idle.
template <class Cache>
struct VectorDecode {
  static constexpr int kHeads = 4;  // of a CTA: more would not fit into the registers of three CTAs an SM
  static constexpr int kDims = 8;   // of a lane
  static constexpr int kKeys = 4;   // of a warp in a stage
  static constexpr int kStageKeys = kWarps * kKeys;
  static constexpr int kStages = sizeof(Cache) > 2 ? 2 : 4;
  static constexpr int kPieceBytes = kDims * static_cast<int>(sizeof(Cache));
  static constexpr int kCopyBytes = kPieceBytes < 16 ? kPieceBytes : 16;

  struct alignas(16) Piece {
    unsigned char bytes[kPieceBytes];
  };
  struct Stage {
    Piece keys[kKeys][kThreads], values[kKeys][kThreads];
  };
  union Shared {
    Stage stages[kStages];
    WarpResults<32 * kDims, kHeads> results;
  };

  const DecodeProblem& problem;
  const ScoreOptions& options;
  const WorkItem& item;
  const HeadTile& heads;
  Shared& shared;
  const int warp, dim;  // the latter the lane's first
  const bool has_dims;
  const int num_stages;
  int blocks[kKeys];  // that the keys of the next stage to be copied lie in
  float q[kHeads][kDims];
  float max[kHeads], sum[kHeads], values[kHeads][kDims];

  __device__ VectorDecode(const DecodeProblem& problem, const ScoreOptions& options, const WorkItem& item,
                          const HeadTile& heads)
      : problem(problem),
        options(options),
        item(item),
        heads(heads),
        shared(*dynamic_shared<Shared>()),
        warp(warp_index()),
        dim(lane_index() * kDims),
        has_dims(dim < options.head_dim),
        num_stages((item.end_key - item.first_key + kStageKeys - 1) / kStageKeys) {
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
      max[head] = negative_infinity();
      sum[head] = 0;
#pragma unroll
      for (int d = 0; d < kDims; ++d) q[head][d] = values[head][d] = 0;
      if (head < heads.count && has_dims)
        load_numbers(problem.q, problem.query_dtype,
                     item.row * problem.q_row_stride + (heads.first + head) * int64_t{options.head_dim} + dim, q[head]);
    }
    find_blocks(0);
  }

  __device__ __forceinline__ int key_of(int stage, int i) const {
    return item.first_key + stage * kStageKeys + i * kWarps + warp;
  }

  __device__ __forceinline__ void find_blocks(int stage) {
    const int32_t* table = problem.block_tables + item.sequence * problem.block_tables_stride;
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      const int key = key_of(stage, i);
      blocks[i] = key < item.end_key ? table[options.block_size.quotient(key)] : 0;
    }
  }

  // Always commits a group, so that groups count stages.
  __device__ __forceinline__ void start_copies(int stage) {
    if (stage < num_stages && has_dims) {
      const int block_size = static_cast<int>(options.block_size.divisor);
      Stage& to = shared.stages[stage % kStages];
#pragma unroll
      for (int i = 0; i < kKeys; ++i) {
        const int key = key_of(stage, i);
        const int slot = key - options.block_size.quotient(key) * block_size;
        const int64_t within = (int64_t{heads.kv_head} * block_size + slot) * options.head_dim + dim;
        const bool is_valid = key < item.end_key;
        const auto* keys = static_cast<const Cache*>(problem.k_cache) + blocks[i] * problem.k_block_stride + within;
        const auto* values = static_cast<const Cache*>(problem.v_cache) + blocks[i] * problem.v_block_stride + within;
        constexpr int kNumbers = kCopyBytes / static_cast<int>(sizeof(Cache));
#pragma unroll
        for (int first = 0; first < kDims; first += kNumbers) {
          const int byte = first * static_cast<int>(sizeof(Cache));
          copy_async<kCopyBytes>(&to.keys[i][threadIdx.x].bytes[byte], keys + first, is_valid);
          copy_async<kCopyBytes>(&to.values[i][threadIdx.x].bytes[byte], values + first, is_valid);
        }
      }
    }
    commit_copies();
    find_blocks(stage + 1);
  }

  __device__ __forceinline__ void load(const Piece& piece, float (&to)[kDims]) const {
    if (has_dims) {
      load8<Cache>(piece.bytes, to);
    } else {
#pragma unroll
      for (int d = 0; d < kDims; ++d) to[d] = 0;
    }
  }

  // The exponents of the stage's keys, in all lanes of the warp.
  __device__ __forceinline__ void score(int stage, float (&exponents)[kHeads][kKeys]) const {
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      float key[kDims];
      load(shared.stages[stage % kStages].keys[i][threadIdx.x], key);
#pragma unroll
      for (int head = 0; head < kHeads; ++head) {
        float product = 0;
#pragma unroll
        for (int d = 0; d < kDims; ++d) product += q[head][d] * key[d];
        exponents[head][i] = product;
      }
    }
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
      if (head >= heads.count) continue;
#pragma unroll
      for (int i = 0; i < kKeys; ++i) {
        float product = exponents[head][i];
#pragma unroll
        for (int lanes = 16; lanes > 0; lanes /= 2) product += __shfl_xor_sync(kAllLanes, product, lanes);
        const int key = key_of(stage, i);
        exponents[head][i] = key < item.end_key ? options.exponent(product, heads.first + head, key - item.position)
                                                : negative_infinity();
      }
    }
  }

  // What was summed up so far counts `factor` times as much.
  __device__ __forceinline__ void rescale(int head, float factor) {
    sum[head] *= factor;
#pragma unroll
    for (int d = 0; d < kDims; ++d) values[head][d] *= factor;
  }

  __device__ __forceinline__ void attend(int stage) {
    float weights[kHeads][kKeys];
    score(stage, weights);
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
      if (head >= heads.count) continue;
      float new_max = max[head];
#pragma unroll
      for (int i = 0; i < kKeys; ++i) new_max = fmaxf(new_max, weights[head][i]);
      rescale(head, weight_of(max[head], new_max));
      max[head] = new_max;
#pragma unroll
      for (int i = 0; i < kKeys; ++i) {
        weights[head][i] = weight_of(weights[head][i], new_max);
        sum[head] += weights[head][i];
      }
    }
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      float value[kDims];
      load(shared.stages[stage % kStages].values[i][threadIdx.x], value);
#pragma unroll
      for (int head = 0; head < kHeads; ++head) {
        if (head >= heads.count) continue;
#pragma unroll
        for (int d = 0; d < kDims; ++d) values[head][d] += weights[head][i] * value[d];
      }
    }
  }

  __device__ __forceinline__ void run() {
    for (int stage = 0; stage < kStages - 1; ++stage) start_copies(stage);
    for (int stage = 0; stage < num_stages; ++stage) {
      wait_copies<kStages - 2>();
      start_copies(stage + kStages - 1);  // in place of the stage before
      attend(stage);
    }
    __syncthreads();  // the results take the place of the stages
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
      if (head >= heads.count) continue;
      shared.results.maxima[warp][head] = max[head];
      shared.results.sums[warp][head] = sum[head];
#pragma unroll
      for (int d = 0; d < kDims; ++d)
        if (has_dims) shared.results.values[warp][head][dim + d] = values[head][d];
    }
    __syncthreads();
    shared.results.store(problem, item, heads, options.value_scale);
  }
};

// One CTA for each KV head, four of the query heads that share it, and slot.
template <class Cache>
__global__ void __launch_bounds__(kThreads)
    decode_vector(const DecodeProblem problem, const ScoreOptions options, const int tiles_per_group) {
  using Decode = VectorDecode<Cache>;
  let_next_start();
  const HeadTile heads(problem, Decode::kHeads, tiles_per_group);
  for_each_item(problem, [&](const WorkItem& item) { Decode(problem, options, item, heads).run(); });
}

}  // namespace headway
