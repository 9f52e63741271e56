// Moves blocks between the device and the host's pinned memory: there a block's planes lie in one piece.
#include "device.h"

namespace headway {

// Filled in by cuda/kernels.py, field by field in this order, eight bytes each.
struct SwapProblem {
  unsigned char* blocks;  // [planes, blocks, block_bytes], on the device
  int64_t num_planes, plane_bytes, block_bytes;
  unsigned char* host_blocks;  // [blocks, planes, block_bytes]
  int64_t host_block_bytes;
  int64_t is_out;        // from the device to the host
  const int64_t* pairs;  // [pairs, 2], on the host: from, to
  int64_t num_pairs;
  int64_t stream;
};

}  // namespace headway

// One asynchronous copy a block, of as many rows as there are planes: the copy engines do it, beside whatever computes.
HEADWAY_API int headway_swap_blocks(const headway::SwapProblem* problem) {
  using namespace headway;
  for (int64_t i = 0; i < problem->num_pairs; ++i) {
    const int64_t from = problem->pairs[2 * i], to = problem->pairs[2 * i + 1];
    unsigned char* device = problem->blocks + (problem->is_out ? from : to) * problem->block_bytes;
    unsigned char* host = problem->host_blocks + (problem->is_out ? to : from) * problem->host_block_bytes;
    const int code = problem->is_out
                         ? copy_rows(host, problem->block_bytes, device, problem->plane_bytes, problem->block_bytes,
                                     problem->num_planes, problem->stream)
                         : copy_rows(device, problem->plane_bytes, host, problem->block_bytes, problem->block_bytes,
                                     problem->num_planes, problem->stream);
    if (code) return code;
  }
  return 0;
}
