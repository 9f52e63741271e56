// Prefill attention on the CUDA cores, in float32 throughout: for queries in float32, and for caches of another type than
// the queries.
#pragma once

#include "prefill_problem.h"

namespace headway {

// Each warp has four rows of a tile of queries. A lane has a key of the stage for the scores, and every 32nd dimension
// for the values.
struct VectorPrefill {
  static constexpr int kWarpRows = 4, kRows = kWarpRows * kWarps;
  static constexpr int kKeys = 32;
  static constexpr int kDims = 8;  // of a lane: heads have up to 256 numbers

  struct Shared {
    KeyRange::Shared range;
    float weights[kWarps][kWarpRows][kKeys];
  };

  const PrefillProblem& problem;
  const ScoreOptions& options;
  const QueryTile& tile;
  Shared& shared;
  const int width;  // of a key or value in shared memory: 32 keys lie in different banks
  float *const q, *const keys, *const cached_values;
  const int warp, lane;
  KeyRange range;
  QueryRow rows[kWarpRows];
  float max[kWarpRows], sum[kWarpRows], values[kWarpRows][kDims];  // sums are of all keys

  static size_t shared_bytes(int64_t head_dim) {
    return sizeof(Shared) + (kRows * head_dim + 2 * kKeys * (head_dim + 1)) * sizeof(float);
  }

  __device__ VectorPrefill(const PrefillProblem& problem, const ScoreOptions& options, const QueryTile& tile)
      : problem(problem),
        options(options),
        tile(tile),
        shared(*dynamic_shared<Shared>()),
        width(options.head_dim + 1),
        q(reinterpret_cast<float*>(dynamic_shared<Shared>() + 1)),
        keys(q + kRows * options.head_dim),
        cached_values(keys + kKeys * width),
        warp(warp_index()),
        lane(lane_index()) {
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r) {
      rows[r] = tile.row(problem, warp * kWarpRows + r);
      range.include(rows[r]);
      max[r] = negative_infinity();
      sum[r] = 0;
#pragma unroll
      for (float& value : values[r]) value = 0;
    }
    range.join(shared.range);
  }

  __device__ __forceinline__ void load_queries() const {
    const int pieces = options.head_dim / 8;
    for (int i = static_cast<int>(threadIdx.x); i < kRows * pieces; i += kThreads) {
      const int index = i / pieces, dim = i % pieces * 8;
      const QueryRow row = tile.row(problem, index);
      float numbers[8] = {};
      if (row.query >= 0)
        load_numbers(problem.q, problem.query_dtype,
                     row.query * problem.q_row_stride + row.head * options.head_dim + dim, numbers);
#pragma unroll
      for (int d = 0; d < 8; ++d) q[index * options.head_dim + dim + d] = numbers[d];
    }
  }

  // Keys and values behind the range are zeros.
  __device__ __forceinline__ void load_stage(int first_key) const {
    const int pieces = options.head_dim / 8, block_size = static_cast<int>(options.block_size.divisor);
    for (int i = static_cast<int>(threadIdx.x); i < kKeys * pieces; i += kThreads) {
      const int at = i / pieces, key = first_key + at, dim = i % pieces * 8;
      float key_numbers[8] = {}, value_numbers[8] = {};
      if (key < range.end) {
        const int index = options.block_size.quotient(key);
        const int64_t block = problem.block_tables[tile.sequence * problem.block_tables_stride + index];
        const int64_t within = (tile.kv_head * block_size + key - index * block_size) * options.head_dim + dim;
        load_numbers(problem.k_cache, problem.cache_dtype, block * problem.k_block_stride + within, key_numbers);
        load_numbers(problem.v_cache, problem.cache_dtype, block * problem.v_block_stride + within, value_numbers);
      }
#pragma unroll
      for (int d = 0; d < 8; ++d) {
        keys[at * width + dim + d] = key_numbers[d];
        cached_values[at * width + dim + d] = value_numbers[d];
      }
    }
  }

  __device__ __forceinline__ float exponent(int r, int key) const {
    const QueryRow& row = rows[r];
    if (key < row.first_key || key >= row.end_key) return negative_infinity();
    const float* query = q + (warp * kWarpRows + r) * options.head_dim;
    float product = 0;
    for (int dim = 0; dim < options.head_dim; ++dim) product += query[dim] * keys[lane * width + dim];
    return options.exponent(product, row.head, key - row.position);
  }

  __device__ __forceinline__ void attend(int first_key) {
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r) {
      const float own = exponent(r, first_key + lane);
      float new_max = fmaxf(max[r], own);
#pragma unroll
      for (int lanes = 16; lanes > 0; lanes /= 2) new_max = fmaxf(new_max, __shfl_xor_sync(kAllLanes, new_max, lanes));
      const float factor = weight_of(max[r], new_max), weight = weight_of(own, new_max);
      max[r] = new_max;
      float total = weight;
#pragma unroll
      for (int lanes = 16; lanes > 0; lanes /= 2) total += __shfl_xor_sync(kAllLanes, total, lanes);
      sum[r] = sum[r] * factor + total;
#pragma unroll
      for (float& value : values[r]) value *= factor;
      shared.weights[warp][r][lane] = weight;
    }
    __syncwarp();
    for (int key = 0; key < kKeys; ++key) {
#pragma unroll
      for (int d = 0; d < kDims; ++d) {
        if (d * 32 + lane >= options.head_dim) continue;
        const float value = cached_values[key * width + d * 32 + lane];
#pragma unroll
        for (int r = 0; r < kWarpRows; ++r) values[r][d] += shared.weights[warp][r][key] * value;
      }
    }
  }

  __device__ __forceinline__ void store() const {
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r) {
      const QueryRow& row = rows[r];
      if (row.query < 0) continue;
      const float factor = sum[r] == 0 ? 0.0f : options.value_scale / sum[r];
      const int64_t first = row.query * problem.out_row_stride + row.head * problem.out_head_stride;
#pragma unroll
      for (int d = 0; d < kDims; ++d)
        if (d * 32 + lane < options.head_dim)
          store_number(problem.out, problem.out_dtype, first + d * 32 + lane, values[r][d] * factor);
      if (lane == 0) store_logarithm(problem, row, max[r], sum[r]);
    }
  }

  __device__ __forceinline__ void run() {
    load_queries();
    for (int first_key = range.first; first_key < range.end; first_key += kKeys) {
      load_stage(first_key);
      __syncthreads();
      attend(first_key);
      __syncthreads();  // all have done with the stage
    }
    store();
  }
};

// One CTA for each tile and KV head.
__global__ void __launch_bounds__(kThreads) prefill_vector(const PrefillProblem problem, const ScoreOptions options) {
  const QueryTile tile(problem, VectorPrefill::kRows);
  if (!tile.is_empty()) VectorPrefill(problem, options, tile).run();
}

inline int launch_prefill_vector(const PrefillProblem& problem) {
  const dim3 grid{static_cast<unsigned>(num_tiles(problem, VectorPrefill::kRows)),
                  static_cast<unsigned>(problem.num_kv_heads), 1};
  return launch(prefill_vector, grid, dim3{kThreads, 1, 1}, VectorPrefill::shared_bytes(problem.head_dim),
                problem.stream, problem, ScoreOptions(problem));
}

}  // namespace headway
