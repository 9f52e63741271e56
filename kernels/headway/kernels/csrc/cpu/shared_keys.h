// Which decodes of a step read the same keys from the same blocks: behind a common prefix, or samples of one prompt.
#pragma once

#include <vector>

#include "attention_problem.h"

namespace headway {

// Sequences of one query token that all see the keys [partition * kPartitionKeys, end), in the same blocks. `end` lies
// between two tiles, and before the last key of each sequence or at the partition's end.
struct KeySharers {
  int64_t partition, end;
  std::vector<int64_t> sequences;
};

// What is worth sharing: nothing if a tile has no room for two of them. A sequence is once among the sharers of a
// partition, or not at all.
std::vector<KeySharers> find_key_sharers(const AttentionProblem& problem);

}  // namespace headway
