// Copies blocks to others of the same cache, in all its layers, keys and values: a step's copy-on-write list in one
// launch.
#include "device.h"

namespace headway {

// Filled in by cuda/kernels.py, field by field in this order, eight bytes each.
struct CopyProblem {
  unsigned char* blocks;  // [planes, blocks, block_bytes]
  int64_t num_planes, plane_bytes, block_bytes;
  const int64_t* pairs;  // [pairs, 2]: from, to
  int64_t num_pairs;
  int64_t stream;
};

// One CTA for each plane and pair.
__global__ void __launch_bounds__(kThreads) copy_blocks(const CopyProblem problem) {
  constexpr int kPieces = 4;  // on their way at once for each thread
  const int64_t* pair = problem.pairs + 2 * blockIdx.y;
  unsigned char* plane = problem.blocks + blockIdx.x * problem.plane_bytes;
  const auto* from = reinterpret_cast<const uint4*>(plane + pair[0] * problem.block_bytes);
  auto* to = reinterpret_cast<uint4*>(plane + pair[1] * problem.block_bytes);
  const int64_t num_pieces = problem.block_bytes / static_cast<int64_t>(sizeof(uint4));
  for (int64_t first = threadIdx.x; first < num_pieces; first += kPieces * kThreads) {
    uint4 pieces[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
      if (first + i * kThreads < num_pieces) pieces[i] = from[first + i * kThreads];
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
      if (first + i * kThreads < num_pieces) to[first + i * kThreads] = pieces[i];
  }
}

}  // namespace headway

HEADWAY_API int headway_copy_blocks(const headway::CopyProblem* problem) {
  using namespace headway;
  if (problem->num_pairs == 0) return 0;
  const dim3 grid{static_cast<unsigned>(problem->num_planes), static_cast<unsigned>(problem->num_pairs), 1};
  return launch(copy_blocks, grid, dim3{kThreads, 1, 1}, 0, problem->stream, *problem);
}
