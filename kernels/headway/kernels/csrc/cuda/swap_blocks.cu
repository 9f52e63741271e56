// Moves blocks between the device and the host's pinned memory: there a block's planes lie in one piece.
//
// A kernel does it, that reads and writes the host's memory over the bus: a launch serves many blocks wherever they lie.
// The copy engines would take one call for each block, of rows no further apart than 2 GiB, or one for each of its
// planes.
#include "pieces.h"

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

// The pairs of a launch travel with its operands, so that nobody has to keep them for it.
struct SwapLaunch {
  static constexpr int kMaxPairs = 256;

  SwapProblem problem;
  int32_t pairs[kMaxPairs][2];
};

// One CTA for each plane and pair.
__global__ void __launch_bounds__(kThreads) swap_blocks(const SwapLaunch launch) {
  const SwapProblem& problem = launch.problem;
  const int64_t from = launch.pairs[blockIdx.y][0], to = launch.pairs[blockIdx.y][1];
  unsigned char* device = problem.blocks + blockIdx.x * problem.plane_bytes +
                          (problem.is_out ? from : to) * problem.block_bytes;
  unsigned char* host = problem.host_blocks + (problem.is_out ? to : from) * problem.host_block_bytes +
                        blockIdx.x * problem.block_bytes;
  copy_pieces(problem.is_out ? device : host, problem.is_out ? host : device, problem.block_bytes);
}

}  // namespace headway

HEADWAY_API int headway_swap_blocks(const headway::SwapProblem* problem) {
  using namespace headway;
  SwapLaunch operands{*problem, {}};
  if (const int code = find_pinned(problem->host_blocks, &operands.problem.host_blocks)) return code;
  for (int64_t first = 0; first < problem->num_pairs; first += SwapLaunch::kMaxPairs) {
    const int64_t left = problem->num_pairs - first, count = left < SwapLaunch::kMaxPairs ? left : SwapLaunch::kMaxPairs;
    for (int64_t i = 0; i < count; ++i)
      for (int64_t side = 0; side < 2; ++side)
        operands.pairs[i][side] = static_cast<int32_t>(problem->pairs[2 * (first + i) + side]);
    const dim3 grid{static_cast<unsigned>(problem->num_planes), static_cast<unsigned>(count), 1};
    if (const int code = launch(swap_blocks, grid, dim3{kThreads, 1, 1}, 0, problem->stream, operands)) return code;
  }
  return 0;
}
