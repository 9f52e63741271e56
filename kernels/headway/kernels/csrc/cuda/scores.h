// From the product of a query and a key to the key's weight, for decode and prefill attention.
#pragma once

#include "device.h"

namespace headway {

// key / divisor for keys below 2^24 and divisors from 2 to 128, without a division.
struct Divisor {
  uint32_t divisor, factor;

  __host__ __device__ explicit Divisor(int64_t number)
      : divisor(static_cast<uint32_t>(number)), factor(static_cast<uint32_t>((uint64_t{1} << 32) / number + 1)) {}

  __device__ __forceinline__ int quotient(int key) const {
    return static_cast<int>(__umulhi(static_cast<uint32_t>(key), factor));
  }
};

// What a thread needs of an attention problem in its inner loop, in 32 bits where those do.
struct ScoreOptions {
  Divisor block_size;
  int head_dim;
  bool is_plain;  // neither soft cap nor ALiBi: a product times plain_scale is an exponent
  float scale, plain_scale, soft_cap, value_scale;
  const float* alibi_slopes;

  template <class Problem>
  explicit ScoreOptions(const Problem& problem)
      : block_size(problem.block_size),
        head_dim(static_cast<int>(problem.head_dim)),
        is_plain(problem.soft_cap == 0 && !problem.alibi_slopes),
        scale(static_cast<float>(problem.scale * problem.key_scale)),
        plain_scale(scale * kLog2E),
        soft_cap(static_cast<float>(problem.soft_cap)),
        value_scale(static_cast<float>(problem.value_scale)),
        alibi_slopes(problem.alibi_slopes) {}

  // The exponent of 2 that a key's weight has, from the product of query and key.
  __device__ __forceinline__ float exponent(float product, int64_t head, int distance) const {
    float score = product * scale;
    if (soft_cap > 0) score = soft_cap * fast_tanh(score / soft_cap);
    if (alibi_slopes) score += alibi_slopes[head] * static_cast<float>(distance);
    return score * kLog2E;
  }
};

// exp2(exponent - max), 0 where no key has been seen yet.
__device__ __forceinline__ float weight_of(float exponent, float max) {
  return exponent == negative_infinity() ? 0.0f : fast_exp2(exponent - max);
}

}  // namespace headway
