// The gate of a gated feed-forward layer.
#include "abi.h"
#include "team.h"

namespace headway {

struct GateProblem {
  int64_t num_threads, dtype;
  void* out;            // [num_rows, width]
  const void* gate_up;  // [num_rows, 2 * width]
  int64_t stride;       // elements from one row of gate_up to the next
  int64_t num_rows, width;
};

}  // namespace headway

// out[t, i] = silu(gate_up[t, i]) * gate_up[t, width + i], with silu(x) = x / (1 + e^-x)
HEADWAY_API int headway_silu_mul(const headway::GateProblem* problem) {
  using namespace headway;
  with_dtype(problem->dtype, [=](auto type) {
    using T = decltype(type);
    const int64_t width = problem->width;
    parallel_for(problem->num_rows, 2 * width, problem->num_threads, [=](int64_t t) {
      const T* gate = static_cast<const T*>(problem->gate_up) + t * problem->stride;
      const T* up = gate + width;
      T* out = static_cast<T*>(problem->out) + t * width;
      for_each_vec(width, [=](int64_t i, auto lanes) {
        const Vec x = load(gate + i, lanes);
        store(out + i, x / (exp(-x) + 1.0f) * load(up + i, lanes), lanes);
      });
    });
  });
  return 0;
}
