// What a step reads in which each sequence has one token, laid out where the step's kernels look for it.
#include <cstring>

#include "abi.h"

namespace headway {

struct DecodeInputsProblem {
  int64_t num_rows, block_size;
  const int32_t *token_ids, *first_positions;  // [num_rows]
  const int32_t* blocks;                       // of each sequence those up to its token's, one sequence after the other
  int64_t num_blocks;                          // of all of them
  int64_t *out_token_ids, *positions, *slots;  // [num_rows]
  int32_t* tables;                             // [num_rows, table_stride]
  int64_t table_stride;
  int32_t* lengths;  // [num_rows]
};

}  // namespace headway

// Returns 0; 1 if a sequence's blocks do not fit into its table, 2 if `blocks` does not hold what all have together. Then
// some rows may have been written.
HEADWAY_API int headway_decode_inputs(const headway::DecodeInputsProblem* problem) {
  const headway::DecodeInputsProblem& p = *problem;
  const int32_t *blocks = p.blocks, *const end = p.blocks + p.num_blocks;
  for (int64_t row = 0; row < p.num_rows; ++row) {
    const int64_t position = p.first_positions[row], last = position / p.block_size;
    if (last >= p.table_stride) return 1;
    if (last >= end - blocks) return 2;
    p.out_token_ids[row] = p.token_ids[row];
    p.positions[row] = position;
    p.slots[row] = blocks[last] * p.block_size + position % p.block_size;
    std::memcpy(p.tables + row * p.table_stride, blocks, (last + 1) * sizeof *blocks);
    p.lengths[row] = static_cast<int32_t>(position + 1);
    blocks += last + 1;
  }
  return blocks == end ? 0 : 2;
}
