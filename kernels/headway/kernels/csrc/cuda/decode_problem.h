// The operands of paged decode attention: one query token per row, its keys and values in blocks.
#pragma once

#include "scores.h"

namespace headway {

// A range of one row's keys, for all KV heads. Filled in by cuda/plan.py.
struct WorkItem {
  int32_t row;       // of q and the results; -1: nothing to do
  int32_t sequence;  // row of the block table
  int32_t first_key, end_key;
  int32_t position;  // of the query among the keys, that ALiBi counts from
  int32_t partial;   // where the result goes among the partial ones; -1: it is the row's whole result
};

// What decides which kernel serves a problem.
struct DecodeShape {
  int64_t query_dtype, cache_dtype, num_heads, num_kv_heads, head_dim;
};

// Filled in by cuda/attention_calls.py, field by field in this order, eight bytes each. Strides count elements.
struct DecodeProblem : DecodeShape {
  int64_t out_dtype;
  void* out;
  int64_t out_row_stride, out_head_stride;
  float* lse;  // log of the softmax's sum, natural; null: not wanted
  int64_t lse_row_stride, lse_head_stride;
  const void* q;
  int64_t q_row_stride;
  const void* k_cache;
  int64_t k_block_stride;
  const void* v_cache;
  int64_t v_block_stride;
  int64_t block_size;
  const int32_t* block_tables;
  int64_t block_tables_stride;
  const WorkItem* work;
  int64_t num_work;
  int64_t num_slots;  // of those, which as many CTAs for each tile of heads attend to side by side
  float* partials;  // [partials, heads, head_dim + 1]: values, then the log of the softmax's sum
  const float* alibi_slopes;  // [heads]; null: none
  double scale, soft_cap;     // soft_cap 0: none
  double key_scale, value_scale;  // what cached numbers are multiplied by
  int64_t stream;
};

// The query heads that a CTA attends to: they share a KV head.
struct HeadTile {
  int kv_head, first, count;

  // blockIdx.x counts the tiles of one KV head after the other.
  __device__ HeadTile(const DecodeProblem& problem, int heads_per_tile, int tiles_per_group)
      : kv_head(static_cast<int>(blockIdx.x) / tiles_per_group) {
    const int group = static_cast<int>(problem.num_heads) / static_cast<int>(problem.num_kv_heads);
    const int before = static_cast<int>(blockIdx.x) % tiles_per_group * heads_per_tile;
    first = kv_head * group + before;
    count = group - before < heads_per_tile ? group - before : heads_per_tile;
  }
};

// Calls `attend` with each of the CTA's work items. They lie largest first, and CTAs take them in turn, forwards and
// backwards: so that all work about as long, as cuda/plan.py counts on. What is not taken lies behind what is.
template <class Attend>
__device__ __forceinline__ void for_each_item(const DecodeProblem& problem, Attend attend) {
  const int num_slots = static_cast<int>(gridDim.y), slot = static_cast<int>(blockIdx.y);
  for (int round = 0;; ++round) {
    const int index = round * num_slots + (round % 2 ? num_slots - 1 - slot : slot);
    if (index >= problem.num_work) return;
    const WorkItem item = problem.work[index];
    if (item.row < 0) return;
    if (round > 0) __syncthreads();  // all have done with the results, which give way to keys
    attend(item);
  }
}

}  // namespace headway
