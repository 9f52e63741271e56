// RMS normalisation of rows, alone or after adding to the residual stream.
#include "abi.h"
#include "rms.h"
#include "team.h"

namespace headway {

struct NormProblem {
  int64_t num_threads, dtype;
  void* out;  // [num_rows, width]
  const void* x;
  int64_t x_stride;  // elements from one row to the next
  void* residual;    // null: none
  int64_t residual_stride;
  const void* weight;
  int64_t num_rows, width;
  double eps;
};

}  // namespace headway

// With y = x, or y = (residual += x): out = y / rms(y) * weight, row by row.
HEADWAY_API int headway_rms_norm(const headway::NormProblem* problem) {
  using namespace headway;
  with_dtype(problem->dtype, [=](auto type) {
    using T = decltype(type);
    const int64_t width = problem->width;
    parallel_for(problem->num_rows, width, problem->num_threads, [=](int64_t t) {
      const T* row = static_cast<const T*>(problem->x) + t * problem->x_stride;
      if (problem->residual) {
        T* sums = static_cast<T*>(problem->residual) + t * problem->residual_stride;
        for_each_vec(width, [=](int64_t i, auto lanes) {
          store(sums + i, load(sums + i, lanes) + load(row + i, lanes), lanes);
        });
        row = sums;
      }
      scale_row(row, inverse_rms(row, width, static_cast<float>(problem->eps)),
                static_cast<const T*>(problem->weight), static_cast<T*>(problem->out) + t * width, width);
    });
  });
  return 0;
}
