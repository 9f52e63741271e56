// The operands of paged attention of many queries a sequence, and how they are cut into tiles.
#pragma once

#include "scores.h"

namespace headway {

// Filled in by cuda/kernels.py, field by field in this order, eight bytes each. Strides count elements.
struct PrefillProblem {
  int64_t query_dtype, cache_dtype, out_dtype;
  void* out;
  int64_t out_row_stride, out_head_stride;
  float* lse;  // log of the softmax's sum, natural; null: not wanted
  int64_t lse_row_stride, lse_head_stride;
  const void* q;
  int64_t q_row_stride;
  int64_t num_queries, num_heads, num_kv_heads, head_dim;
  const void* k_cache;
  int64_t k_block_stride;
  const void* v_cache;
  int64_t v_block_stride;
  int64_t block_size;
  const int32_t* block_tables;
  int64_t block_tables_stride;
  int64_t num_sequences;
  const int32_t* seq_lens;     // [sequences]; the last of them are the queries'
  const int32_t* query_start;  // [sequences + 1]
  int64_t sliding_window;      // 0: none
  const int32_t* key_spans;    // [queries, 2], what each sees; null: all up to itself, as far as the window goes
  const float* alibi_slopes;   // [heads]; null: none
  double scale, soft_cap;      // soft_cap 0: none
  double key_scale, value_scale;  // what cached numbers are multiplied by
  int64_t stream;
};

// A query and one of the heads that share a KV head.
struct QueryRow {
  int query;  // row of q; -1: there is none
  int head;
  int first_key, end_key;  // that it sees
  int position;            // among the keys
};

// Rows of one sequence and KV head that lie one after the other: its queries, for each of them the heads that share the
// KV head. So keys and values are read once for all of those heads, however many they are.
struct QueryTile {
  int64_t kv_head;
  int sequence, group;
  int first_row, num_rows;  // of the tile, and of its sequence in all

  // A sequence's tiles begin at number query_start * group / rows + sequence, which leaves room for all of them: so a
  // launch's size depends on the number of queries and of sequences alone. The last tiles come first: they see most.
  __device__ QueryTile(const PrefillProblem& problem, int rows_per_tile)
      : kv_head(blockIdx.y), group(static_cast<int>(problem.num_heads / problem.num_kv_heads)) {
    const auto number = static_cast<int64_t>(gridDim.x - 1 - blockIdx.x);
    const auto first_of = [&](int64_t at) {
      return static_cast<int64_t>(problem.query_start[at]) * group / rows_per_tile + at;
    };
    int64_t low = 0, high = problem.num_sequences;
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (first_of(middle) <= number ? low : high) = middle;
    }
    sequence = static_cast<int>(low);
    first_row = static_cast<int>(number - first_of(low)) * rows_per_tile;
    num_rows = (problem.query_start[low + 1] - problem.query_start[low]) * group;
  }

  __device__ __forceinline__ bool is_empty() const { return first_row >= num_rows; }

  __device__ __forceinline__ QueryRow row(const PrefillProblem& problem, int index) const {
    const int row = first_row + index;
    if (row >= num_rows) return {-1, 0, 0, 0, 0};
    const int first_query = problem.query_start[sequence], query = first_query + row / group;
    const int position = problem.seq_lens[sequence] - num_rows / group + row / group;
    QueryRow found{query, static_cast<int>(kv_head) * group + row % group, 0, position + 1, position};
    if (problem.key_spans) {
      found.first_key = problem.key_spans[2 * query];
      found.end_key = problem.key_spans[2 * query + 1];
    } else if (problem.sliding_window > 0 && found.end_key > problem.sliding_window) {
      found.first_key = found.end_key - static_cast<int>(problem.sliding_window);
    }
    return found;
  }
};

// As many as a `QueryTile` can be the last of.
inline int64_t num_tiles(const PrefillProblem& problem, int rows_per_tile) {
  return problem.num_queries * (problem.num_heads / problem.num_kv_heads) / rows_per_tile + problem.num_sequences;
}

// The keys that any of a CTA's rows sees.
struct KeyRange {
  struct Shared {
    int firsts[kWarps], ends[kWarps];
  };

  int first = INT32_MAX, end = 0;

  __device__ __forceinline__ void include(const QueryRow& row) {
    if (row.first_key >= row.end_key) return;
    first = row.first_key < first ? row.first_key : first;
    end = row.end_key > end ? row.end_key : end;
  }

  __device__ __forceinline__ void include(int other_first, int other_end) {
    first = other_first < first ? other_first : first;
    end = other_end > end ? other_end : end;
  }

  // Called by all threads.
  __device__ __forceinline__ void join(Shared& shared) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      const int other_first = __shfl_xor_sync(kAllLanes, first, lanes);
      const int other_end = __shfl_xor_sync(kAllLanes, end, lanes);
      include(other_first, other_end);
    }
    if (lane_index() == 0) {
      shared.firsts[warp_index()] = first;
      shared.ends[warp_index()] = end;
    }
    __syncthreads();
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) include(shared.firsts[warp], shared.ends[warp]);
    if (end == 0) first = 0;
  }
};

// Logarithm of a row's sum of weights that are powers of 2.
__device__ __forceinline__ void store_logarithm(const PrefillProblem& problem, const QueryRow& row, float max,
                                                float sum) {
  if (problem.lse)
    problem.lse[row.query * problem.lse_row_stride + row.head * problem.lse_head_stride] =
        sum == 0 ? negative_infinity() : max * kLn2 + logf(sum);
}

}  // namespace headway
