// The operands of one paged attention call, and how its work is cut into tiles.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace headway {

// Keys scored together. Tiles and partitions lie on a grid of places in the block table, so that a row sees the same
// sequence of roundings whether it is computed by a decode, a whole prompt or an odd chunk.
constexpr int kTileKeys = 64;
constexpr int kPartitionKeys = 512;  // keys whose softmax is computed apart, on any thread, and merged in order
constexpr int kTileRows = 64;        // query rows that share each tile of keys

// Places [first, end) among a sequence's keys. Empty unless given, in a way that joins with others without a trace.
struct KeySpan {
  int64_t first = std::numeric_limits<int64_t>::max(), end = 0;

  bool is_empty() const { return first >= end; }
  KeySpan joined(KeySpan other) const { return {std::min(first, other.first), std::max(end, other.end)}; }
};

// Filled in by cpu.py, field by field in this order, eight bytes each.
struct AttentionProblem {
  int64_t num_threads, activation_dtype, cache_dtype, out_dtype;
  void* out;
  int64_t out_token_stride, out_head_stride;  // elements from one to the next
  float* lse;                                 // of every token and head, the log of the softmax's sum; null: not wanted
  int64_t lse_token_stride, lse_head_stride;
  const void* q;
  int64_t q_stride;  // elements from one token to the next
  int64_t num_tokens, num_heads, num_kv_heads, head_dim;
  const void* k_cache;
  int64_t k_block_stride;  // elements from one block to the next
  const void* v_cache;
  int64_t v_block_stride;
  int64_t num_blocks, block_size;
  const int32_t* block_tables;
  int64_t block_tables_stride, max_blocks;
  const int32_t *seq_lens, *query_start;
  const int32_t* key_spans;  // [num_tokens, 2]; null: each token sees what came before it, in the window
  int64_t num_sequences;
  int64_t sliding_window;  // 0: unlimited
  double scale;

  int64_t group_size() const { return num_heads / num_kv_heads; }
  int64_t query_len(int64_t sequence) const { return query_start[sequence + 1] - query_start[sequence]; }
  const int32_t* block_table(int64_t sequence) const { return block_tables + sequence * block_tables_stride; }

  // The keys that a sequence's query token sees.
  KeySpan visible(int64_t sequence, int64_t token) const {
    if (key_spans) {
      const int32_t* span = key_spans + 2 * (query_start[sequence] + token);
      return span[0] < span[1] ? KeySpan{span[0], span[1]} : KeySpan{};
    }
    const int64_t end = seq_lens[sequence] - query_len(sequence) + token + 1;
    return {sliding_window > 0 ? std::max<int64_t>(0, end - sliding_window) : 0, end};
  }

  // From the first key to the last that any of the query tokens [first_token, last_token] sees.
  KeySpan visible(int64_t sequence, int64_t first_token, int64_t last_token) const {
    KeySpan span = visible(sequence, first_token).joined(visible(sequence, last_token));
    if (key_spans)
      for (int64_t token = first_token + 1; token < last_token; ++token) span = span.joined(visible(sequence, token));
    return span;
  }
};

// Query rows that read one KV head. Of one sequence: row r is token r / group_size, head r % group_size of the group.
// Of sharers of keys: the same, over the plan's sharers from `first_sharer` on, and `sequence` is the first of them.
// [first_key, last_key) are the keys to attend to, for the rows that see them.
struct RowTile {
  int64_t sequence, kv_head;
  int64_t first_row, num_rows;
  int64_t first_key, last_key;
  int64_t first_sharer = -1;
  int64_t partial = -1;  // offset of its result in the workspace; -1: a thread's own memory
  int64_t lanes = -1;    // offset of its lanes' sums, where another tile has begun it; -1: it is the first
  bool is_whole = true;  // its result is the rows' whole one

  bool has_keys() const { return first_key < last_key; }

  // In units of one row that sees one key; to bring a key in costs about as much as eight.
  int64_t cost() const { return (num_rows + 8) * (last_key - first_key); }
};

// A decode among those that share keys, and where the result of its rows goes. `lanes` is -1 where that is complete.
struct Sharer {
  int64_t sequence, partial, lanes;
};

// Rows whose context was cut into partitions; the partial results lie one after the other.
struct SplitRows {
  RowTile tile;
  int64_t partial, num_partials;
};

struct AttentionPlan {
  std::vector<RowTile> shared_tiles;  // to be computed before the others, which may go on with what they give
  std::vector<Sharer> sharers;
  std::vector<RowTile> tiles;
  std::vector<int64_t> chunk_ends;  // tiles that one thread takes in a row end here
  std::vector<SplitRows> splits;
  std::vector<RowTile> blanks;  // rows that see no key
  int64_t workspace_floats = 0;
  int64_t cost = 0;
};

// `floats_per_row` is the size of one row's partial result.
AttentionPlan plan_attention(const AttentionProblem& problem, int64_t floats_per_row);

// 0, or the code of the operand that holds impossible values: 1 query_start, 2 seq_lens, 3 block_tables, 4 key_spans.
int check_attention(const AttentionProblem& problem);

}  // namespace headway
