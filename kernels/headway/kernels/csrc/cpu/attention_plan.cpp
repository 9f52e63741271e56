// Cuts an attention call into tiles, the largest first, and these into chunks that threads take as they get free.
#include "attention_problem.h"
#include "shared_keys.h"
#include "vec.h"

namespace headway {
namespace {

constexpr int64_t kNumChunks = 64;

RowTile make_tile(const AttentionProblem& problem, int64_t sequence, int64_t first_row, int64_t num_rows) {
  const int64_t group = problem.group_size();
  const KeySpan keys = problem.visible(sequence, first_row / group, (first_row + num_rows - 1) / group);
  RowTile tile{};
  tile.sequence = sequence;
  tile.first_row = first_row;
  tile.num_rows = num_rows;
  tile.first_key = keys.first;
  tile.last_key = keys.end;
  return tile;
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

// What each sequence shares of each partition, and where the sharers' tiles leave the results.
class SharedPartitions {
 public:
  explicit SharedPartitions(const AttentionProblem& problem)
      : problem_(problem), sharers_(find_key_sharers(problem)) {
    for (const KeySharers& group : sharers_) num_partitions_ = std::max(num_partitions_, group.partition + 1);
    places_.resize(problem.num_sequences * num_partitions_);
    for (const KeySharers& group : sharers_)
      for (const int64_t sequence : group.sequences) place(sequence, group.partition).end = group.end;
  }

  // The end of the keys that are shared; 0: none are.
  int64_t end(int64_t sequence, int64_t partition) const {
    return partition < num_partitions_ ? places_[sequence * num_partitions_ + partition].end : 0;
  }

  // Where the first KV head's partial result goes, and its lanes' sums or -1; those of the others follow.
  void put(int64_t sequence, int64_t partition, int64_t partial, int64_t lanes, int64_t stride) {
    Place& at = place(sequence, partition);
    at.partial = partial;
    at.lanes = lanes;
    at.stride = stride;
  }

  void add_tiles(AttentionPlan& plan) const {
    const int64_t group_size = problem_.group_size();
    const int64_t most = std::max<int64_t>(2, kSharedRows / group_size);
    for (const KeySharers& group : sharers_) {
      const int64_t num_sharers = group.sequences.size(), num_tiles = (num_sharers + most - 1) / most;
      for (int64_t head = 0; head < problem_.num_kv_heads; ++head)
        for (int64_t i = 0; i < num_tiles; ++i)
          add_tile(group, head, num_sharers * i / num_tiles, num_sharers * (i + 1) / num_tiles, plan);
    }
  }

 private:
  // Rows of a tile: enough to make little of bringing the keys in, few enough for threads to share.
  static constexpr int64_t kSharedRows = kTileRows / 2;

  struct Place {
    int64_t end, partial, lanes, stride;
  };

  Place& place(int64_t sequence, int64_t partition) { return places_[sequence * num_partitions_ + partition]; }

  void add_tile(const KeySharers& group, int64_t kv_head, int64_t first, int64_t last, AttentionPlan& plan) const {
    RowTile tile{};
    tile.sequence = group.sequences[first];
    tile.kv_head = kv_head;
    tile.num_rows = (last - first) * problem_.group_size();
    tile.first_key = group.partition * kPartitionKeys;
    tile.last_key = group.end;
    tile.first_sharer = plan.sharers.size();
    tile.is_whole = false;
    plan.shared_tiles.push_back(tile);
    plan.cost += tile.cost();
    for (int64_t i = first; i < last; ++i) {
      const int64_t sequence = group.sequences[i];
      const Place& at = places_[sequence * num_partitions_ + group.partition];
      const int64_t offset = kv_head * at.stride;
      plan.sharers.push_back({sequence, at.partial + offset, at.lanes < 0 ? -1 : at.lanes + offset});
    }
  }

  const AttentionProblem& problem_;
  const std::vector<KeySharers> sharers_;
  int64_t num_partitions_ = 0;  // up to the last one that is shared
  std::vector<Place> places_;   // [sequence, partition]
};

// Few rows: one tile per partition of the context, for the keys that are not shared.
void plan_decode(const AttentionProblem& problem, int64_t sequence, int64_t num_rows, int64_t floats_per_row,
                 SharedPartitions& shared, AttentionPlan& plan) {
  const RowTile whole = make_tile(problem, sequence, 0, num_rows);
  if (!whole.has_keys()) return add_for_each_head(problem, whole, plan.blanks);
  const int64_t first_partition = whole.first_key / kPartitionKeys;
  const int64_t num_partitions = (whole.last_key - 1) / kPartitionKeys + 1 - first_partition;
  bool is_sharing = false;
  for (int64_t p = first_partition; p < first_partition + num_partitions; ++p)
    is_sharing = is_sharing || shared.end(sequence, p) > 0;
  // Else its one tile, the last, is its whole result.
  const bool is_split = num_partitions > 1 || shared.end(sequence, first_partition) == whole.last_key;
  const int64_t partial_floats = num_rows * floats_per_row, lanes_floats = is_sharing ? num_rows * kLanes : 0;
  const int64_t floats_per_head = is_split || is_sharing ? num_partitions * (partial_floats + lanes_floats) : 0;
  for (int64_t kv_head = 0; kv_head < problem.num_kv_heads; ++kv_head, plan.workspace_floats += floats_per_head) {
    RowTile tile = whole;
    tile.kv_head = kv_head;
    tile.is_whole = !is_split;
    if (is_split) plan.splits.push_back({tile, plan.workspace_floats, num_partitions});
    for (int64_t i = 0; i < num_partitions; ++i) {
      const int64_t p = first_partition + i, shared_end = shared.end(sequence, p);
      const int64_t partial = plan.workspace_floats + i * partial_floats;
      const int64_t lanes = plan.workspace_floats + num_partitions * partial_floats + i * lanes_floats;
      tile.first_key = std::max({whole.first_key, p * kPartitionKeys, shared_end});
      tile.last_key = std::min(whole.last_key, (p + 1) * kPartitionKeys);
      tile.partial = is_split || shared_end > 0 ? partial : -1;
      tile.lanes = shared_end > 0 ? lanes : -1;
      if (tile.has_keys()) plan.tiles.push_back(tile);
      if (kv_head == 0 && shared_end > 0)
        shared.put(sequence, p, partial, tile.has_keys() ? lanes : -1, floats_per_head);
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
  SharedPartitions shared(problem);
  for (const bool prefills : {true, false}) {
    for (int64_t sequence = 0; sequence < problem.num_sequences; ++sequence) {
      const int64_t num_rows = problem.query_len(sequence) * problem.group_size();
      if (num_rows == 0 || (num_rows > kTileRows) != prefills) continue;
      if (prefills)
        plan_prefill(problem, sequence, num_rows, plan);
      else
        plan_decode(problem, sequence, num_rows, floats_per_row, shared, plan);
    }
  }
  cut_chunks(plan);
  shared.add_tiles(plan);
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
