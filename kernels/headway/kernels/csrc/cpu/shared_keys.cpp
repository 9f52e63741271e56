#include "shared_keys.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace headway {
namespace {

// A decode that sees the keys of a partition from its start on.
struct Reader {
  int32_t first_block;  // the partition's, in the decode's table
  int64_t sequence;
  int64_t end;  // of what it could share
};

// The readers of one partition, and how they are joined.
class Partition {
 public:
  Partition(const AttentionProblem& problem, int64_t number)
      : problem_(problem),
        number_(number),
        start_(number * kPartitionKeys),
        first_block_(start_ / problem.block_size) {}

  void add(int64_t sequence, KeySpan keys) {
    const int64_t partition_end = start_ + kPartitionKeys;
    const int64_t end = keys.end >= partition_end ? partition_end : (keys.end - 1) / kTileKeys * kTileKeys;
    if (keys.first <= start_ && end > start_)
      readers_.push_back({problem_.block_table(sequence)[first_block_], sequence, end});
  }

  // Most partitions begin with different blocks: those are told apart by these alone.
  void join(std::vector<KeySharers>& sharers) {
    std::sort(readers_.begin(), readers_.end(), [](const Reader& a, const Reader& b) {
      return std::pair(a.first_block, a.sequence) < std::pair(b.first_block, b.sequence);
    });
    for (size_t begin = 0, end; begin < readers_.size(); begin = end) {
      for (end = begin + 1; end < readers_.size() && readers_[end].first_block == readers_[begin].first_block;) ++end;
      if (end - begin > 1) join_run(begin, end, sharers);
    }
  }

 private:
  const int32_t* blocks_of(const Reader& reader) const { return problem_.block_table(reader.sequence) + first_block_; }

  int64_t count_blocks(int64_t end) const { return (end - 1) / problem_.block_size + 1 - first_block_; }

  // Readers that begin with the same block: neighbours after sorting share the most.
  void join_run(size_t begin, size_t end, std::vector<KeySharers>& sharers) {
    std::sort(readers_.begin() + begin, readers_.begin() + end, [this](const Reader& a, const Reader& b) {
      const int32_t *x = blocks_of(a), *y = blocks_of(b);
      return std::lexicographical_compare(x, x + count_blocks(a.end), y, y + count_blocks(b.end));
    });
    num_shared_.assign(readers_.size(), 0);
    for (size_t i = begin; i + 1 < end; ++i) num_shared_[i] = count_shared(readers_[i], readers_[i + 1]);
    join_best(begin, end - 1, sharers);
  }

  // Keys that both can share, in whole tiles.
  int64_t count_shared(const Reader& a, const Reader& b) const {
    const int64_t end = std::min(a.end, b.end);
    const int32_t *x = blocks_of(a), *y = blocks_of(b);
    const int64_t num_equal = std::mismatch(x, x + count_blocks(end), y).first - x;
    const int64_t equal_end = (first_block_ + num_equal) * problem_.block_size;
    return std::max<int64_t>(0, std::min(end, equal_end / kTileKeys * kTileKeys) - start_);
  }

  // Joins the readers [first, last], or those on either side of where the fewest keys are shared: whatever saves more.
  // Returns how many reads of a key that saves.
  int64_t join_best(size_t first, size_t last, std::vector<KeySharers>& sharers) {
    if (first == last) return 0;
    const auto begin = num_shared_.begin() + first, end = num_shared_.begin() + last;
    const auto fewest = std::min_element(begin, end);
    const int64_t saved_together = static_cast<int64_t>(last - first) * *fewest;
    const int64_t most_apart = std::accumulate(begin, end, int64_t{0}) - *fewest;
    if (saved_together < most_apart) {
      const size_t num_before = sharers.size(), middle = fewest - num_shared_.begin();
      const int64_t saved_apart = join_best(first, middle, sharers) + join_best(middle + 1, last, sharers);
      if (saved_apart >= saved_together) return saved_apart;
      sharers.resize(num_before);
    }
    if (saved_together > 0) {
      KeySharers all{number_, start_ + *fewest, {}};
      for (size_t i = first; i <= last; ++i) all.sequences.push_back(readers_[i].sequence);
      sharers.push_back(std::move(all));
    }
    return saved_together;
  }

  const AttentionProblem& problem_;
  const int64_t number_, start_, first_block_;
  std::vector<Reader> readers_;
  std::vector<int64_t> num_shared_;  // of each reader with the next one
};

}  // namespace

std::vector<KeySharers> find_key_sharers(const AttentionProblem& problem) {
  std::vector<std::pair<int64_t, KeySpan>> decodes;
  int64_t end = 0;
  for (int64_t sequence = 0; sequence < problem.num_sequences; ++sequence) {
    if (problem.query_len(sequence) != 1) continue;
    decodes.emplace_back(sequence, problem.visible(sequence, 0));
    end = std::max(end, decodes.back().second.end);
  }
  std::vector<KeySharers> sharers;
  if (decodes.size() < 2 || 2 * problem.group_size() > kTileRows) return sharers;
  for (int64_t number = 0; number * kPartitionKeys < end; ++number) {
    Partition partition(problem, number);
    for (const auto& [sequence, keys] : decodes) partition.add(sequence, keys);
    partition.join(sharers);
  }
  return sharers;
}

}  // namespace headway
