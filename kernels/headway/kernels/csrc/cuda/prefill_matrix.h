// Prefill attention on the tensor cores: each warp has 16 rows of a tile of queries, and all go through the keys together
// (FlashAttention-2, algorithm 1).
#pragma once

#include "prefill_problem.h"

namespace headway {

// `T` is the type that is multiplied, of queries and cache; a cache in fp8 is widened on its way into shared memory.
// Heads have up to kHeadDim numbers.
template <class T, int kHeadDim>
struct MatrixPrefill {
  static constexpr int kRows = 16 * kWarps;
  static constexpr int kKeys = kHeadDim > 96 ? 32 : 64;  // of a stage
  static constexpr int kWarpKeys = kKeys / kWarps;        // of a stage, that one warp copies
  static constexpr int kStages = 2;
  static constexpr int kPieces = kHeadDim / 8;  // of a key's head, that one lane copies each
  static constexpr int kWidth = kHeadDim + 8;   // of a row in shared memory: eight rows lie in different banks
  static_assert(kHeadDim % 16 == 0 && kWarpKeys * kPieces % 32 == 0);

  struct alignas(16) Stage {
    T keys[kKeys][kWidth], values[kKeys][kWidth];
  };
  struct alignas(16) Shared {
    T q[kRows][kWidth];
    Stage stages[kStages];
    KeyRange::Shared range;
  };
  static_assert(sizeof(Shared) <= 110 * 1024, "an SM of 228 KiB holds two CTAs");

  const PrefillProblem& problem;
  const ScoreOptions& options;
  const QueryTile& tile;
  Shared& shared;
  const int warp, lane;
  QueryRow rows[2];  // lane / 4 of the warp's, and lane / 4 + 8
  KeyRange range;
  int num_stages;
  int place;  // block * 128 + slot of key `lane` of those that the warp copies next
  float max[2], sum[2], values[kHeadDim / 8][4];  // of `rows`; sums are of this lane's keys

  __device__ MatrixPrefill(const PrefillProblem& problem, const ScoreOptions& options, const QueryTile& tile)
      : problem(problem),
        options(options),
        tile(tile),
        shared(*dynamic_shared<Shared>()),
        warp(warp_index()),
        lane(lane_index()) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      rows[r] = tile.row(problem, warp * 16 + lane / 4 + 8 * r);
      range.include(rows[r]);
      max[r] = negative_infinity();
      sum[r] = 0;
    }
#pragma unroll
    for (auto& eight : values)
#pragma unroll
      for (float& value : eight) value = 0;
    range.join(shared.range);
    num_stages = (range.end - range.first + kKeys - 1) / kKeys;
    find_place(0);
  }

  // Rows that there are not hold zeros, as do dimensions that heads have not, here and in keys and values.
  __device__ __forceinline__ void load_queries() {
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kPieces; i += kThreads) {
      const int index = i / kPieces, dim = i % kPieces * 8;
      const QueryRow row = tile.row(problem, index);
      uint4 piece{0, 0, 0, 0};
      if (row.query >= 0 && dim < options.head_dim)
        piece = load16(static_cast<const T*>(problem.q) + row.query * problem.q_row_stride +
                       row.head * options.head_dim + dim);
      store16(&shared.q[index][dim], piece);
    }
  }

  __device__ __forceinline__ int first_key_of(int stage) const { return range.first + stage * kKeys; }

  __device__ __forceinline__ void find_place(int stage) {
    const int key = first_key_of(stage) + warp * kWarpKeys + lane % kWarpKeys;
    place = 0;
    if (key >= range.end) return;
    const int index = options.block_size.quotient(key);
    const int block = problem.block_tables[tile.sequence * problem.block_tables_stride + index];
    place = block * 128 + key - index * static_cast<int>(options.block_size.divisor);
  }

  __device__ __forceinline__ void copy_piece(T* to, const void* cache, int64_t offset, bool is_valid) const {
    if (problem.cache_dtype != kFp8) return copy_async<16>(to, static_cast<const T*>(cache) + offset, is_valid);
    uint2 raw{0, 0};
    if (is_valid) raw = *reinterpret_cast<const uint2*>(static_cast<const fp8*>(cache) + offset);
    uint32_t pairs[2][2];
    widened<T>(raw.x, pairs[0]);
    widened<T>(raw.y, pairs[1]);
    store16(to, {pairs[0][0], pairs[0][1], pairs[1][0], pairs[1][1]});
  }

  // Always commits a group, so that groups count stages.
  __device__ __forceinline__ void start_copies(int stage) {
    if (stage < num_stages) {
      Stage& to = shared.stages[stage % kStages];
      const int first = warp * kWarpKeys, num_valid = range.end - first_key_of(stage) - first;
#pragma unroll
      for (int i = 0; i < kWarpKeys * kPieces / 32; ++i) {
        const int key = (i * 32 + lane) / kPieces, dim = (i * 32 + lane) % kPieces * 8;
        const int at = __shfl_sync(kAllLanes, place, key);
        const int64_t within = (tile.kv_head * options.block_size.divisor + at % 128) * options.head_dim + dim;
        const bool is_valid = key < num_valid && dim < options.head_dim;
        copy_piece(&to.keys[first + key][dim], problem.k_cache, at / 128 * problem.k_block_stride + within, is_valid);
        copy_piece(&to.values[first + key][dim], problem.v_cache, at / 128 * problem.v_block_stride + within, is_valid);
      }
    }
    commit_copies();
    find_place(stage + 1);
  }

  // Of each 8 keys, elements 0 and 1 are of the lane's first row, elements 2 and 3 of its second; in either, keys
  // 2 (lane % 4) and the next.
  __device__ __forceinline__ void score(int stage, float (&exponents)[kKeys / 8][4]) const {
    const Stage& from = shared.stages[stage % kStages];
#pragma unroll
    for (int dim = 0; dim < kHeadDim; dim += 16) {
      uint32_t queries[4];
      load_matrices(queries, &shared.q[warp * 16 + lane % 16][dim + lane / 16 * 8]);
#pragma unroll
      for (int key = 0; key < kKeys; key += 16) {
        uint32_t keys[4];
        load_matrices(keys, &from.keys[key + lane % 8 + lane / 16 * 8][dim + lane / 8 % 2 * 8]);
        multiply_add<T>(exponents[key / 8], queries, keys[0], keys[1]);
        multiply_add<T>(exponents[key / 8 + 1], queries, keys[2], keys[3]);
      }
    }
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
      const int key = first_key_of(stage) + i / 4 * 8 + lane % 4 * 2 + i % 2;
      const QueryRow& row = rows[i / 2 % 2];
      float& exponent = exponents[i / 4][i % 4];
      exponent = row.first_key <= key && key < row.end_key ? options.exponent(exponent, row.head, key - row.position)
                                                           : negative_infinity();
    }
  }

  __device__ __forceinline__ void rescale(int r, float factor) {
    sum[r] *= factor;
#pragma unroll
    for (auto& eight : values) {
      eight[2 * r] *= factor;
      eight[2 * r + 1] *= factor;
    }
  }

  __device__ __forceinline__ void attend(int stage) {
    float weights[kKeys / 8][4] = {};
    score(stage, weights);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float new_max = max[r];
#pragma unroll
      for (int i = 0; i < kKeys / 4; ++i) new_max = fmaxf(new_max, weights[i / 2][2 * r + i % 2]);
      new_max = fmaxf(new_max, __shfl_xor_sync(kAllLanes, new_max, 1));
      new_max = fmaxf(new_max, __shfl_xor_sync(kAllLanes, new_max, 2));
      rescale(r, weight_of(max[r], new_max));
      max[r] = new_max;
#pragma unroll
      for (int i = 0; i < kKeys / 4; ++i) {
        float& weight = weights[i / 2][2 * r + i % 2];
        weight = weight_of(weight, new_max);
        sum[r] += weight;
      }
    }
    const Stage& from = shared.stages[stage % kStages];
#pragma unroll
    for (int key = 0; key < kKeys; key += 16) {
      uint32_t packed[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const auto& eight = weights[key / 8 + i / 2];
        packed[i] = packed_pair<T>(eight[i % 2 * 2], eight[i % 2 * 2 + 1]);
      }
#pragma unroll
      for (int dim = 0; dim < kHeadDim; dim += 16) {
        uint32_t columns[4];
        load_matrices_transposed(columns, &from.values[key + lane % 16][dim + lane / 16 * 8]);
        multiply_add<T>(values[dim / 8], packed, columns[0], columns[1]);
        multiply_add<T>(values[dim / 8 + 1], packed, columns[2], columns[3]);
      }
    }
  }

  __device__ __forceinline__ void store() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] += __shfl_xor_sync(kAllLanes, sum[r], 1);
      sum[r] += __shfl_xor_sync(kAllLanes, sum[r], 2);
      const QueryRow& row = rows[r];
      if (row.query < 0) continue;
      const float factor = sum[r] == 0 ? 0.0f : options.value_scale / sum[r];
      const int64_t first = row.query * problem.out_row_stride + row.head * problem.out_head_stride;
#pragma unroll
      for (int i = 0; i < kHeadDim / 4; ++i) {
        const int dim = i / 2 * 8 + lane % 4 * 2 + i % 2;
        if (dim < options.head_dim)
          store_number(problem.out, problem.out_dtype, first + dim, values[i / 2][2 * r + i % 2] * factor);
      }
      if (lane % 4 == 0) store_logarithm(problem, row, max[r], sum[r]);
    }
  }

  __device__ __forceinline__ void run() {
    for (int stage = 0; stage < kStages - 1; ++stage) start_copies(stage);
    load_queries();
    for (int stage = 0; stage < num_stages; ++stage) {
      wait_copies<kStages - 2>();
      __syncthreads();  // what the other threads copied is here, and they have done with the stage before
      start_copies(stage + kStages - 1);
      attend(stage);
    }
    store();
  }
};

// One CTA for each tile and KV head.
template <class T, int kHeadDim>
__global__ void __launch_bounds__(kThreads) prefill_matrix(const PrefillProblem problem, const ScoreOptions options) {
  using Prefill = MatrixPrefill<T, kHeadDim>;
  const QueryTile tile(problem, Prefill::kRows);
  if (!tile.is_empty()) Prefill(problem, options, tile).run();
}

template <class T, int kHeadDim>
int launch_prefill_matrix(const PrefillProblem& problem) {
  using Prefill = MatrixPrefill<T, kHeadDim>;
  const dim3 grid{static_cast<unsigned>(num_tiles(problem, Prefill::kRows)),
                  static_cast<unsigned>(problem.num_kv_heads), 1};
  return launch(prefill_matrix<T, kHeadDim>, grid, dim3{kThreads, 1, 1}, sizeof(typename Prefill::Shared),
                problem.stream, problem, ScoreOptions(problem));
}

// It is compiled for head sizes up to 64, 96, 128 and 256, in files of their own (prefill_*.cu).
template <int kHeadDim>
int launch_prefill(const PrefillProblem& problem) {
  return problem.query_dtype == kFloat16 ? launch_prefill_matrix<half, kHeadDim>(problem)
                                         : launch_prefill_matrix<bfloat16, kHeadDim>(problem);
}

}  // namespace headway
