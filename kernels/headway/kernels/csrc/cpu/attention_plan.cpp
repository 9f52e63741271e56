// Cuts an attention call into tiles, the largest first, and these into chunks that threads take as they get free.
#include "attention_problem.h"

namespace headway {
namespace {

constexpr int64_t kNumChunks = 64;

RowTile make_tile(const AttentionProblem& problem, int64_t sequence, int64_t first_row, int64_t num_rows) {
  const int64_t group = problem.group_size();
  const KeySpan keys = problem.visible(sequence, first_row / group, (first_row + num_rows - 1) / group);
  return {sequence, 0, first_row, num_rows, keys.first, keys.end, -1};
}

// The tile of every KV head, in `tiles`.
void add_for_each_head(const AttentionProblem& problem, RowTile tile, std::vector<RowTile>& tiles) {
  for (tile.kv_head = 0; tile.kv_head < problem.num_kv_heads; ++tile.kv_head) tiles.push_back(tile);
}

// Many rows: one tile per range of rows, the longest context first.
void plan_prefill(const AttentionProblem& problem, int64_t sequence, int64_t num_rows, AttentionPlan& plan) {
  for (int64_t row = (num_rows - 1) / kTileRows * kTileRows; row >= 0; row -= kTileRows) {
    const RowTile tile = make_tile(problem, sequence, row, std::min<int64_t>(kTileRows, num_rows - row));
    add_for_each_head(problem, tile, tile.has_keys() ? plan.tiles : plan.blanks);
  }
}

// Few rows: one tile per partition of the context.
void plan_decode(const AttentionProblem& problem, int64_t sequence, int64_t num_rows, int64_t floats_per_row,
                 AttentionPlan& plan) {
  const RowTile whole = make_tile(problem, sequence, 0, num_rows);
  if (!whole.has_keys()) return add_for_each_head(problem, whole, plan.blanks);
  const int64_t first_partition = whole.first_key / kPartitionKeys;
  const int64_t num_partitions = (whole.last_key - 1) / kPartitionKeys + 1 - first_partition;
  for (int64_t kv_head = 0; kv_head < problem.num_kv_heads; ++kv_head) {
    RowTile tile = whole;
    tile.kv_head = kv_head;
    if (num_partitions == 1) {
      plan.tiles.push_back(tile);
      continue;
    }
    plan.splits.push_back({tile, plan.workspace_floats, num_partitions});
    for (int64_t p = first_partition; p < first_partition + num_partitions; ++p) {
      tile.first_key = std::max(whole.first_key, p * kPartitionKeys);
      tile.last_key = std::min(whole.last_key, (p + 1) * kPartitionKeys);
      tile.partial = plan.workspace_floats;
      plan.workspace_floats += num_rows * floats_per_row;
      plan.tiles.push_back(tile);
    }
  }
}

void cut_chunks(AttentionPlan& plan) {
  for (const RowTile& tile : plan.tiles) plan.cost += tile.cost();
  int64_t chunk_cost = 0;
  for (size_t i = 0; i < plan.tiles.size(); ++i) {
    chunk_cost += plan.tiles[i].cost();
    if (chunk_cost * kNumChunks < plan.cost && i + 1 < plan.tiles.size()) continue;
    plan.chunk_ends.push_back(static_cast<int64_t>(i) + 1);
    chunk_cost = 0;
  }
}

// True if the query tokens see nothing but keys that the sequence has.
bool check_key_spans(const AttentionProblem& problem, int64_t sequence) {
  for (int64_t t = problem.query_start[sequence]; t < problem.query_start[sequence + 1]; ++t) {
    const int32_t first = problem.key_spans[2 * t], end = problem.key_spans[2 * t + 1];
    if (first < 0 || first > end || end > problem.seq_lens[sequence]) return false;
  }
  return true;
}

}  // namespace

AttentionPlan plan_attention(const AttentionProblem& problem, int64_t floats_per_row) {
  AttentionPlan plan;
  for (const bool prefills : {true, false}) {
    for (int64_t sequence = 0; sequence < problem.num_sequences; ++sequence) {
      const int64_t num_rows = problem.query_len(sequence) * problem.group_size();
      if (num_rows == 0 || (num_rows > kTileRows) != prefills) continue;
      if (prefills)
        plan_prefill(problem, sequence, num_rows, plan);
      else
        plan_decode(problem, sequence, num_rows, floats_per_row, plan);
    }
  }
  cut_chunks(plan);
  return plan;
}

int check_attention(const AttentionProblem& problem) {
  constexpr int kQueryStart = 1, kSeqLens = 2, kBlockTables = 3, kKeySpans = 4;
  if (problem.query_start[0] != 0 || problem.query_start[problem.num_sequences] != problem.num_tokens)
    return kQueryStart;
  for (int64_t sequence = 0; sequence < problem.num_sequences; ++sequence)
    if (problem.query_len(sequence) < 0) return kQueryStart;
  for (int64_t sequence = 0; sequence < problem.num_sequences; ++sequence) {
    const int64_t query_len = problem.query_len(sequence), context_len = problem.seq_lens[sequence];
    if (query_len == 0) continue;
    const int64_t shortest = problem.key_spans ? 0 : query_len;
    if (context_len < shortest || context_len > problem.max_blocks * problem.block_size) return kSeqLens;
    if (problem.key_spans && !check_key_spans(problem, sequence)) return kKeySpans;
    const int32_t* table = problem.block_table(sequence);
    const KeySpan keys = problem.visible(sequence, 0, query_len - 1);
    if (keys.is_empty()) continue;
    for (int64_t b = keys.first / problem.block_size; b <= (keys.end - 1) / problem.block_size; ++b)
      if (table[b] < 0 || table[b] >= problem.num_blocks) return kBlockTables;
  }
  return 0;
}

}  // namespace headway
