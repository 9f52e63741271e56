// Cuts an attention call into tiles, the largest first, and these into chunks that threads take as they get free.
#include "attention_problem.h"

namespace headway {
namespace {

constexpr int64_t kNumChunks = 64;

RowTile make_tile(const AttentionProblem& problem, int64_t sequence, int64_t first_row, int64_t num_rows) {
  const int64_t group = problem.group_size();
  const int64_t first_position = problem.position(sequence, first_row / group);
  const int64_t last_position = problem.position(sequence, (first_row + num_rows - 1) / group);
  return {sequence, 0, first_row, num_rows, problem.first_visible(first_position), last_position + 1, -1};
}

// Many rows: one tile per range of rows, the longest context first.
void plan_prefill(const AttentionProblem& problem, int64_t sequence, int64_t num_rows, AttentionPlan& plan) {
  for (int64_t row = (num_rows - 1) / kTileRows * kTileRows; row >= 0; row -= kTileRows) {
    RowTile tile = make_tile(problem, sequence, row, std::min<int64_t>(kTileRows, num_rows - row));
    for (tile.kv_head = 0; tile.kv_head < problem.num_kv_heads; ++tile.kv_head) plan.tiles.push_back(tile);
  }
}

// Few rows: one tile per partition of the context.
void plan_decode(const AttentionProblem& problem, int64_t sequence, int64_t num_rows, int64_t floats_per_row,
                 AttentionPlan& plan) {
  const RowTile whole = make_tile(problem, sequence, 0, num_rows);
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
  constexpr int kQueryStart = 1, kSeqLens = 2, kBlockTables = 3;
  if (problem.query_start[0] != 0 || problem.query_start[problem.num_sequences] != problem.num_tokens)
    return kQueryStart;
  for (int64_t sequence = 0; sequence < problem.num_sequences; ++sequence)
    if (problem.query_len(sequence) < 0) return kQueryStart;
  for (int64_t sequence = 0; sequence < problem.num_sequences; ++sequence) {
    const int64_t query_len = problem.query_len(sequence), context_len = problem.seq_lens[sequence];
    if (query_len == 0) continue;
    if (context_len < query_len || context_len > problem.max_blocks * problem.block_size) return kSeqLens;
    const int32_t* table = problem.block_table(sequence);
    const int64_t first_block = problem.first_visible(problem.position(sequence, 0)) / problem.block_size;
    for (int64_t b = first_block; b <= (context_len - 1) / problem.block_size; ++b)
      if (table[b] < 0 || table[b] >= problem.num_blocks) return kBlockTables;
  }
  return 0;
}

}  // namespace headway
