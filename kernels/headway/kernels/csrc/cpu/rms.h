// The root mean square of a row, in float32.
#pragma once

#include <cmath>

#include "vec.h"

namespace headway {

// 1 / sqrt(mean(x^2) + eps)
template <class T>
inline float inverse_rms(const T* x, int64_t n, float eps) {
  constexpr int kChains = 4;  // independent sums hide the latency of the addition
  Vec sums[kChains] = {};
  int64_t i = 0;
  for (; i + kChains * kLanes <= n; i += kChains * kLanes) {
    for (int c = 0; c < kChains; ++c) {
      const Vec v = load(x + i + c * kLanes);
      sums[c] += v * v;
    }
  }
  for_each_vec(n - i, [&](int64_t j, auto lanes) {
    const Vec v = load(x + i + j, lanes);
    sums[0] += v * v;
  });
  return 1.0f / std::sqrt(sum((sums[0] + sums[1]) + (sums[2] + sums[3])) / static_cast<float>(n) + eps);
}

// out = x * scale * weight; `out` may be `x`.
template <class In, class Weight, class Out>
inline void scale_row(const In* x, float scale, const Weight* weight, Out* out, int64_t n) {
  for_each_vec(n, [=](int64_t i, auto lanes) {
    store(out + i, load(x + i, lanes) * scale * load(weight + i, lanes), lanes);
  });
}

}  // namespace headway
