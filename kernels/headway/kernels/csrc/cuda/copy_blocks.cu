// Copies blocks to others of the same cache, in all its layers, keys and values: a step's copy-on-write list in one
// launch.
#include "pieces.h"

namespace headway {

// Filled in by cuda/kernels.py, field by field in this order, eight bytes each.
struct CopyProblem {
  unsigned char* blocks;  // [planes, blocks, block_bytes]
  int64_t num_planes, plane_bytes, block_bytes;
  const int64_t* pairs;  // [pairs, 2]: from, to
  int64_t num_pairs;
  int64_t stream;
};

// One CTA for each pair and plane.
__global__ void __launch_bounds__(kThreads) copy_blocks(const CopyProblem problem) {
  const int64_t* pair = problem.pairs + 2 * int64_t{blockIdx.x};
  unsigned char* plane = problem.blocks + blockIdx.y * problem.plane_bytes;
  copy_pieces(plane + pair[0] * problem.block_bytes, plane + pair[1] * problem.block_bytes, problem.block_bytes);
}

}  // namespace headway

HEADWAY_API int headway_copy_blocks(const headway::CopyProblem* problem) {
  using namespace headway;
  if (problem->num_pairs == 0) return 0;
  const dim3 grid{static_cast<unsigned>(problem->num_pairs), static_cast<unsigned>(problem->num_planes), 1};
  return launch(copy_blocks, grid, dim3{kThreads, 1, 1}, 0, problem->stream, *problem);
}
