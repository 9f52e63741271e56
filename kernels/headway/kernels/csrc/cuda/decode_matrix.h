// Decode attention on the tensor cores, for groups of 8 query heads and more: the heads of a group are the rows of a
// matrix.
#pragma once

#include "warp_results.h"

namespace headway {

// Each warp has 16 keys of every stage to itself, which its lanes copy ahead. `T` is the type that is multiplied;
// a cache in fp8 is widened to it in shared memory. Heads have up to kHeadDim numbers.
template <class T, class Cache, int kHeadDim>
struct MatrixDecode {
  static constexpr int kRows = 16;  // query heads
  static constexpr int kKeys = 16;  // of a warp in a stage
  static constexpr int kStageKeys = kWarps * kKeys;
  static constexpr bool kWidens = sizeof(Cache) < sizeof(T);
  static constexpr int kRowBytes = kHeadDim * static_cast<int>(sizeof(Cache));
  static constexpr int kPieces = kRowBytes / 16;  // of a key's head, that one lane copies each
  static constexpr int kWidth = kHeadDim + 8;     // of a row in shared memory: eight rows lie in different banks
  static_assert(kHeadDim % 16 == 0 && kRowBytes % 16 == 0);

  struct alignas(16) Stage {
    unsigned char keys[kWarps][kKeys][kRowBytes + 16], values[kWarps][kKeys][kRowBytes + 16];
  };
  struct alignas(16) Wide {
    T keys[kWarps][kKeys][kWidth], values[kWarps][kKeys][kWidth];
  };
  static constexpr size_t kWideBytes = kWidens ? sizeof(Wide) : 0;
  static constexpr size_t kMostBytes = 110 * 1024;  // of stages, so that an SM of 228 KiB holds two CTAs
  static constexpr int kFitting = static_cast<int>((kMostBytes - kWideBytes) / sizeof(Stage));
  static constexpr int kStages = kFitting < 2 ? 2 : kFitting > 4 ? 4 : kFitting;

  struct alignas(16) Shared {
    T q[kRows][kWidth];
    union {
      Stage stages[kStages];
      WarpResults<kHeadDim, kRows> results;
    };
  };
  static constexpr size_t kSharedBytes = sizeof(Shared) + kWideBytes;
  static_assert(kSharedBytes <= 163 * 1024, "more than a CTA of sm_80 gets");

  const DecodeProblem& problem;
  const ScoreOptions& options;
  const WorkItem item;
  const int64_t kv_head, first_head;
  const int num_heads;
  Shared& shared;
  Wide& wide;  // behind `shared`, where the cache is widened
  const int warp, lane, num_stages;
  const int row_bytes;  // of a key's head in the cache
  int place;  // block * 128 + slot of key `lane` of the next stage to be copied
  float max[2], sum[2], values[kHeadDim / 8][4];  // of rows lane / 4 and lane / 4 + 8; sums are of this lane's keys

  __device__ MatrixDecode(const DecodeProblem& problem, const ScoreOptions& options, int64_t kv_head,
                          int64_t first_head, int num_heads)
      : problem(problem),
        options(options),
        item(problem.work[blockIdx.y]),
        kv_head(kv_head),
        first_head(first_head),
        num_heads(num_heads),
        shared(*dynamic_shared<Shared>()),
        wide(*reinterpret_cast<Wide*>(dynamic_shared<unsigned char>() + sizeof(Shared))),
        warp(warp_index()),
        lane(lane_index()),
        num_stages((item.end_key - item.first_key + kStageKeys - 1) / kStageKeys),
        row_bytes(options.head_dim * static_cast<int>(sizeof(Cache))) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      max[r] = negative_infinity();
      sum[r] = 0;
    }
#pragma unroll
    for (auto& tile : values)
#pragma unroll
      for (float& value : tile) value = 0;
    find_place(0);
  }

  // Rows of heads that there are not hold zeros, as do dimensions that they have not, here and in keys and values.
  __device__ __forceinline__ void load_queries() {
    constexpr int kPiecesOfRow = kHeadDim / 8;
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kPiecesOfRow; i += kThreads) {
      const int row = i / kPiecesOfRow, dim = i % kPiecesOfRow * 8;
      uint4 piece{0, 0, 0, 0};
      if (row < num_heads && dim < options.head_dim)
        piece = *reinterpret_cast<const uint4*>(static_cast<const T*>(problem.q) + item.row * problem.q_row_stride +
                                                (first_head + row) * options.head_dim + dim);
      *reinterpret_cast<uint4*>(&shared.q[row][dim]) = piece;
    }
  }

  __device__ __forceinline__ int first_key_of(int stage) const {
    return item.first_key + stage * kStageKeys + warp * kKeys;
  }

  __device__ __forceinline__ void find_place(int stage) {
    const int key = first_key_of(stage) + lane % kKeys;
    place = 0;
    if (key >= item.end_key) return;
    const int index = options.block_size.quotient(key);
    const int block = problem.block_tables[item.sequence * problem.block_tables_stride + index];
    place = block * 128 + key - index * static_cast<int>(options.block_size.divisor);
  }

  // Always commits a group, so that groups count stages.
  __device__ __forceinline__ void start_copies(int stage) {
    if (stage < num_stages) {
      Stage& to = shared.stages[stage % kStages];
      const int num_valid = item.end_key - first_key_of(stage);
#pragma unroll
      for (int i = 0; i < (kKeys * kPieces + 31) / 32; ++i) {
        const int piece = i * 32 + lane, key = piece / kPieces % kKeys, byte = piece % kPieces * 16;
        const int at = __shfl_sync(kAllLanes, place, key);
        if (piece >= kKeys * kPieces) continue;
        const int64_t within = (kv_head * options.block_size.divisor + at % 128) * row_bytes + byte;
        constexpr int64_t kBytes = sizeof(Cache);
        const auto* keys = static_cast<const char*>(problem.k_cache) + at / 128 * problem.k_block_stride * kBytes;
        const auto* values = static_cast<const char*>(problem.v_cache) + at / 128 * problem.v_block_stride * kBytes;
        const bool is_valid = key < num_valid && byte < row_bytes;
        copy_async<16>(&to.keys[warp][key][byte], keys + within, is_valid);
        copy_async<16>(&to.values[warp][key][byte], values + within, is_valid);
      }
    }
    commit_copies();
    find_place(stage + 1);
  }

  __device__ __forceinline__ void widen(const unsigned char (&from)[kKeys][kRowBytes + 16], T (&to)[kKeys][kWidth]) {
    for (int piece = lane; piece < kKeys * kPieces; piece += 32) {
      const int key = piece / kPieces, byte = piece % kPieces * 16;
      const uint4 raw = *reinterpret_cast<const uint4*>(&from[key][byte]);
      uint32_t pairs[4][2];
      widened<T>(raw.x, pairs[0]);
      widened<T>(raw.y, pairs[1]);
      widened<T>(raw.z, pairs[2]);
      widened<T>(raw.w, pairs[3]);
      auto* out = reinterpret_cast<uint4*>(&to[key][byte]);
      out[0] = {pairs[0][0], pairs[0][1], pairs[1][0], pairs[1][1]};
      out[1] = {pairs[2][0], pairs[2][1], pairs[3][0], pairs[3][1]};
    }
  }

  __device__ __forceinline__ const T* key_row(int stage, int key) const {
    if constexpr (kWidens)
      return wide.keys[warp][key];
    else
      return reinterpret_cast<const T*>(shared.stages[stage % kStages].keys[warp][key]);
  }
  __device__ __forceinline__ const T* value_row(int stage, int key) const {
    if constexpr (kWidens)
      return wide.values[warp][key];
    else
      return reinterpret_cast<const T*>(shared.stages[stage % kStages].values[warp][key]);
  }

  // Of tile n of 8 keys, elements 0 and 1 are of row lane / 4, elements 2 and 3 of row lane / 4 + 8; in either, keys
  // 8 n + 2 (lane % 4) and the next.
  __device__ __forceinline__ void score(int stage, float (&exponents)[2][4]) const {
#pragma unroll
    for (int dim = 0; dim < kHeadDim; dim += 16) {
      uint32_t queries[4], keys[4];
      load_matrices(queries, &shared.q[lane % 16][dim + lane / 16 * 8]);
      load_matrices(keys, key_row(stage, lane % 8 + lane / 16 * 8) + dim + lane / 8 % 2 * 8);
      multiply_add<T>(exponents[0], queries, keys[0], keys[1]);
      multiply_add<T>(exponents[1], queries, keys[2], keys[3]);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int key = first_key_of(stage) + i / 4 * 8 + lane % 4 * 2 + i % 2, row = lane / 4 + i / 2 % 2 * 8;
      float& exponent = exponents[i / 4][i % 4];
      exponent = key < item.end_key && row < num_heads
                     ? options.exponent(exponent, first_head + row, key - item.position)
                     : negative_infinity();
    }
  }

  __device__ __forceinline__ void rescale(int r, float factor) {
    sum[r] *= factor;
#pragma unroll
    for (auto& tile : values) {
      tile[2 * r] *= factor;
      tile[2 * r + 1] *= factor;
    }
  }

  __device__ __forceinline__ void attend(int stage) {
    float weights[2][4] = {};
    score(stage, weights);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float new_max = max[r];
#pragma unroll
      for (int i = 0; i < 4; ++i) new_max = fmaxf(new_max, weights[i / 2][2 * r + i % 2]);
      new_max = fmaxf(new_max, __shfl_xor_sync(kAllLanes, new_max, 1));
      new_max = fmaxf(new_max, __shfl_xor_sync(kAllLanes, new_max, 2));
      rescale(r, weight_of(max[r], new_max));
      max[r] = new_max;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& weight = weights[i / 2][2 * r + i % 2];
        weight = weight_of(weight, new_max);
        sum[r] += weight;
      }
    }
    uint32_t packed[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) packed[i] = packed_pair<T>(weights[i / 2][i % 2 * 2], weights[i / 2][i % 2 * 2 + 1]);
#pragma unroll
    for (int dim = 0; dim < kHeadDim; dim += 16) {
      uint32_t columns[4];
      load_matrices_transposed(columns, value_row(stage, lane % 16) + dim + lane / 16 * 8);
      multiply_add<T>(values[dim / 8], packed, columns[0], columns[1]);
      multiply_add<T>(values[dim / 8 + 1], packed, columns[2], columns[3]);
    }
  }

  __device__ __forceinline__ void keep_results() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = lane / 4 + 8 * r;
      sum[r] += __shfl_xor_sync(kAllLanes, sum[r], 1);
      sum[r] += __shfl_xor_sync(kAllLanes, sum[r], 2);
      shared.results.maxima[warp][row] = max[r];
      shared.results.sums[warp][row] = sum[r];
#pragma unroll
      for (int i = 0; i < kHeadDim / 4; ++i)
        shared.results.values[warp][row][i / 2 * 8 + lane % 4 * 2 + i % 2] = values[i / 2][2 * r + i % 2];
    }
  }

  __device__ __forceinline__ void run() {
    for (int stage = 0; stage < kStages - 1; ++stage) start_copies(stage);
    load_queries();
    __syncthreads();
    for (int stage = 0; stage < num_stages; ++stage) {
      wait_copies<kStages - 2>();
      __syncwarp();  // what the other lanes copied is here, and they have done with the stage before
      start_copies(stage + kStages - 1);
      if constexpr (kWidens) {
        widen(shared.stages[stage % kStages].keys[warp], wide.keys[warp]);
        widen(shared.stages[stage % kStages].values[warp], wide.values[warp]);
        __syncwarp();
      }
      attend(stage);
    }
    __syncthreads();  // the results take the place of the stages
    keep_results();
    __syncthreads();
    shared.results.store(problem, item, first_head, num_heads, options.value_scale);
  }
};

// One CTA for each KV head, 16 of the query heads that share it, and work item.
template <class T, class Cache, int kHeadDim>
__global__ void __launch_bounds__(kThreads)
    decode_matrix(const DecodeProblem problem, const ScoreOptions options, const int tiles_per_group) {
  using Decode = MatrixDecode<T, Cache, kHeadDim>;
  if (problem.work[blockIdx.y].row < 0) return;
  const int64_t kv_head = blockIdx.x / tiles_per_group, tile = blockIdx.x % tiles_per_group;
  const int64_t group = problem.num_heads / problem.num_kv_heads;
  const int64_t num_left = group - tile * Decode::kRows;
  Decode(problem, options, kv_head, kv_head * group + tile * Decode::kRows,
         static_cast<int>(num_left < Decode::kRows ? num_left : Decode::kRows))
      .run();
}

}  // namespace headway
