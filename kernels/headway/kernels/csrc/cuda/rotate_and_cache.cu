// What happens to queries, keys and values between their projection and the attention: per-head norm, rotation, and
// the write into the paged cache, in one launch. Without a cache queries and keys are rotated only.
#include "device.h"

namespace headway {

constexpr int kMaxHeadDim = 256;  // as in cuda/operands.py
constexpr int kVector = 4;        // numbers of a lane at a time
constexpr float kLargestFp8 = 448;

// int32 or int64 numbers behind one pointer.
struct Indices {
  const void* data;
  int64_t is_int64;

  __device__ int64_t operator[](int64_t i) const {
    return is_int64 ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
};

// Filled in by cuda/kernels.py, field by field in this order, eight bytes each. Strides count elements.
struct RotaryProblem {
  int64_t activation_dtype, cache_dtype;
  void* q;
  int64_t q_token_stride;
  void* k;
  int64_t k_token_stride;
  const void* v;
  int64_t v_token_stride;
  int64_t num_tokens, num_heads, num_kv_heads, head_dim;
  void* k_cache;  // null: nothing is written, and v is not read
  int64_t k_block_stride;
  void* v_cache;
  int64_t v_block_stride;
  int64_t block_size;
  Indices slots;  // below 0: another cache holds the token
  Indices positions;
  const float* cos_sin;  // [positions, rotary_dim], cosines first; null: no rotation
  int64_t rotary_dim;
  const void *q_norm, *k_norm;  // [head_dim]; null: no norm
  double eps;
  double key_scale, value_scale;  // what cached numbers will be multiplied by
  int64_t stream;
};

template <class T>
__device__ __forceinline__ void copy_in(const T* from, float* to, int64_t size) {
  for (int64_t i = lane_index() * kVector; i < size; i += 32 * kVector) {
    const auto vector = *reinterpret_cast<const Vector<T, kVector>*>(from + i);
#pragma unroll
    for (int k = 0; k < kVector; ++k) to[i + k] = to_float(vector.numbers[k]);
  }
}

template <class T>
__device__ __forceinline__ void copy_out(const float* from, T* to, int64_t size, float factor) {
  for (int64_t i = lane_index() * kVector; i < size; i += 32 * kVector) {
    Vector<T, kVector> vector;
#pragma unroll
    for (int k = 0; k < kVector; ++k) {
      float number = from[i + k] * factor;
      if constexpr (sizeof(T) == 1) number = fminf(fmaxf(number, -kLargestFp8), kLargestFp8);
      vector.numbers[k] = rounded<T>(number);
    }
    *reinterpret_cast<Vector<T, kVector>*>(to + i) = vector;
  }
}

// One head in shared memory, which its warp has to itself.
struct Head {
  float* numbers;
  int64_t size;

  template <class T>
  __device__ __forceinline__ void normalise(const T* weight, float eps) const {
    float sum = 0;
    for (int64_t i = lane_index(); i < size; i += 32) sum += numbers[i] * numbers[i];
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(kAllLanes, sum, lanes);
    const float inverse = 1.0f / sqrtf(sum / static_cast<float>(size) + eps);
    for (int64_t i = lane_index(); i < size; i += 32) numbers[i] *= inverse * to_float(weight[i]);
    __syncwarp();
  }

  // (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin), for the two halves of the leading rotary_dim numbers
  __device__ __forceinline__ void rotate(const float* cos_sin, int64_t rotary_dim) const {
    const int64_t half_dim = rotary_dim / 2;
    for (int64_t i = lane_index(); i < half_dim; i += 32) {
      const float cosine = cos_sin[i], sine = cos_sin[half_dim + i];
      const float first = numbers[i], second = numbers[half_dim + i];
      numbers[i] = first * cosine - second * sine;
      numbers[half_dim + i] = second * cosine + first * sine;
    }
    __syncwarp();
  }
};

__host__ __device__ inline int64_t rows_of_token(const RotaryProblem& problem) {
  return problem.num_heads + (problem.k_cache ? 2 : 1) * problem.num_kv_heads;
}

// One warp for each token and head: those of q, then of k, then of v.
template <class T, class Cache>
__global__ void __launch_bounds__(kThreads) rotate_and_cache(const RotaryProblem problem) {
  const int64_t num_rows = rows_of_token(problem);
  const int64_t index = int64_t{blockIdx.x} * kWarps + warp_index();
  const int64_t token = index / num_rows, row = index % num_rows;
  if (token >= problem.num_tokens) return;
  const int64_t head_dim = problem.head_dim;
  const bool is_query = row < problem.num_heads, is_value = row >= problem.num_heads + problem.num_kv_heads;
  const int64_t kv_head = (row - problem.num_heads) % problem.num_kv_heads;
  T* from = static_cast<T*>(problem.q) + token * problem.q_token_stride + row * head_dim;
  if (!is_query && !is_value) from = static_cast<T*>(problem.k) + token * problem.k_token_stride + kv_head * head_dim;
  if (is_value)
    from = const_cast<T*>(static_cast<const T*>(problem.v)) + token * problem.v_token_stride + kv_head * head_dim;
  const Head head{dynamic_shared<float>() + warp_index() * kMaxHeadDim, head_dim};

  copy_in(from, head.numbers, head_dim);
  __syncwarp();
  if (!is_value) {
    const auto* weight = static_cast<const T*>(is_query ? problem.q_norm : problem.k_norm);
    if (weight) head.normalise(weight, static_cast<float>(problem.eps));
    if (problem.cos_sin)
      head.rotate(problem.cos_sin + problem.positions[token] * problem.rotary_dim, problem.rotary_dim);
    if (weight || problem.cos_sin) copy_out(head.numbers, from, head_dim, 1.0f);
  }
  if (is_query || !problem.k_cache) return;
  const int64_t slot = problem.slots[token];
  if (slot < 0) return;
  const int64_t block = slot / problem.block_size;
  const int64_t within = (kv_head * problem.block_size + slot % problem.block_size) * head_dim;
  if (is_value)
    copy_out(head.numbers, static_cast<Cache*>(problem.v_cache) + block * problem.v_block_stride + within, head_dim,
             static_cast<float>(1 / problem.value_scale));
  else
    copy_out(head.numbers, static_cast<Cache*>(problem.k_cache) + block * problem.k_block_stride + within, head_dim,
             static_cast<float>(1 / problem.key_scale));
}

template <class T, class Cache>
int launch_rotary(const RotaryProblem& problem) {
  const int64_t num_warps = problem.num_tokens * rows_of_token(problem);
  const dim3 grid{static_cast<unsigned>((num_warps + kWarps - 1) / kWarps), 1, 1};
  return launch(rotate_and_cache<T, Cache>, grid, dim3{kThreads, 1, 1}, kWarps * kMaxHeadDim * sizeof(float),
                problem.stream, problem);
}

template <class T>
int launch_rotary_into(const RotaryProblem& problem) {
  switch (problem.cache_dtype) {
    case kFloat32:
      if constexpr (sizeof(T) == 4) return launch_rotary<float, float>(problem);
      return kUnsupported;
    case kFloat16: return launch_rotary<T, half>(problem);
    case kBFloat16: return launch_rotary<T, bfloat16>(problem);
    case kFp8: return launch_rotary<T, fp8>(problem);
    default: return kUnsupported;
  }
}

}  // namespace headway

HEADWAY_API int headway_rotate_and_cache(const headway::RotaryProblem* problem) {
  using namespace headway;
  switch (problem->activation_dtype) {
    case kFloat32: return launch_rotary_into<float>(*problem);
    case kFloat16: return launch_rotary_into<half>(*problem);
    case kBFloat16: return launch_rotary_into<bfloat16>(*problem);
    default: return kUnsupported;
  }
}
