// silu(gate) * up, where each row holds the gate, then up.
#include "device.h"

namespace headway {

// Filled in by cuda/kernels.py, field by field in this order, eight bytes each. Strides count elements.
struct GateProblem {
  int64_t dtype;
  void* out;  // [rows, width], contiguous
  const void* gate_up;
  int64_t gate_up_stride;
  int64_t num_rows, width;  // a multiple of 8
  int64_t stream;
};

// Eight numbers for each thread.
template <class T>
__global__ void __launch_bounds__(kThreads) silu_mul(const GateProblem problem) {
  const int64_t row = blockIdx.x, first = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * 8;
  if (first >= problem.width) return;
  const T* gate_up = static_cast<const T*>(problem.gate_up) + row * problem.gate_up_stride + first;
  float gates[8], numbers[8];
  load8<T>(gate_up, gates);
  load8<T>(gate_up + problem.width, numbers);
#pragma unroll
  for (int k = 0; k < 8; ++k) numbers[k] *= gates[k] / (1.0f + fast_exp2(-kLog2E * gates[k]));
  store8<T>(static_cast<T*>(problem.out) + row * problem.width + first, numbers);
}

template <class T>
int launch_gate(const GateProblem& problem) {
  const int64_t num_ctas = (problem.width + 8 * kThreads - 1) / (8 * kThreads);
  const dim3 grid{static_cast<unsigned>(problem.num_rows), static_cast<unsigned>(num_ctas), 1};
  return launch(silu_mul<T>, grid, dim3{kThreads, 1, 1}, 0, problem.stream, problem);
}

}  // namespace headway

HEADWAY_API int headway_silu_mul(const headway::GateProblem* problem) {
  using namespace headway;
  if (problem->num_rows == 0 || problem->width == 0) return 0;
  switch (problem->dtype) {
    case kFloat32: return launch_gate<float>(*problem);
    case kFloat16: return launch_gate<half>(*problem);
    case kBFloat16: return launch_gate<bfloat16>(*problem);
    default: return kUnsupported;
  }
}
