// Root-mean-square norm of rows, or of a residual stream to which the rows are added first.
#include "cta_sum.h"

namespace headway {

constexpr int kMaxNormThreads = 512;

// Filled in by cuda/kernels.py, field by field in this order, eight bytes each. Strides count elements.
struct NormProblem {
  int64_t dtype;
  void* out;  // [rows, width], contiguous
  const void* x;
  int64_t x_stride;
  void* residual;  // becomes residual + x; null: none
  int64_t residual_stride;
  const void* weight;
  int64_t num_rows, width;  // a multiple of 8
  double eps;
  int64_t stream;
};

// One CTA for each row. A thread reads again what it has written itself, which the cache still holds.
template <class T>
__global__ void __launch_bounds__(kMaxNormThreads) rms_norm(const NormProblem problem) {
  const int64_t row = blockIdx.x, first = threadIdx.x * 8, step = blockDim.x * 8;
  const T* x = static_cast<const T*>(problem.x) + row * problem.x_stride;
  if (problem.residual) {
    T* residual = static_cast<T*>(problem.residual) + row * problem.residual_stride;
    for (int64_t i = first; i < problem.width; i += step) {
      float numbers[8], added[8];
      load8<T>(residual + i, numbers);
      load8<T>(x + i, added);
#pragma unroll
      for (int k = 0; k < 8; ++k) numbers[k] += added[k];
      store8<T>(residual + i, numbers);
    }
    x = residual;
  }
  float sum = 0;
  for (int64_t i = first; i < problem.width; i += step) {
    float numbers[8];
    load8<T>(x + i, numbers);
#pragma unroll
    for (int k = 0; k < 8; ++k) sum += numbers[k] * numbers[k];
  }
  const float mean = cta_sum(sum, dynamic_shared<float>()) / static_cast<float>(problem.width);
  const float factor = 1.0f / sqrtf(mean + static_cast<float>(problem.eps));
  T* out = static_cast<T*>(problem.out) + row * problem.width;
  for (int64_t i = first; i < problem.width; i += step) {
    float numbers[8], weights[8];
    load8<T>(x + i, numbers);
    load8<T>(static_cast<const T*>(problem.weight) + i, weights);
#pragma unroll
    for (int k = 0; k < 8; ++k) numbers[k] *= factor * weights[k];
    store8<T>(out + i, numbers);
  }
}

template <class T>
int launch_norm(const NormProblem& problem) {
  const int64_t num_warps = (problem.width + 255) / 256;
  const int64_t num_threads = 32 * num_warps < kMaxNormThreads ? 32 * num_warps : kMaxNormThreads;
  return launch(rms_norm<T>, dim3{static_cast<unsigned>(problem.num_rows), 1, 1},
                dim3{static_cast<unsigned>(num_threads), 1, 1}, kMaxWarps * sizeof(float), problem.stream, problem);
}

}  // namespace headway

HEADWAY_API int headway_rms_norm(const headway::NormProblem* problem) {
  using namespace headway;
  if (problem->num_rows == 0) return 0;
  switch (problem->dtype) {
    case kFloat32: return launch_norm<float>(*problem);
    case kFloat16: return launch_norm<half>(*problem);
    case kBFloat16: return launch_norm<bfloat16>(*problem);
    default: return kUnsupported;
  }
}
