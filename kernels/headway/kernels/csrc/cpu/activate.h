// Activation functions on a register.
#pragma once

#include "vec.h"

namespace headway {

enum Activation : int64_t { kNone, kRelu, kSilu, kGelu, kGeluTanh };  // as in cpu.py

inline Vec logistic(Vec x) { return reciprocal(exp(-x) + 1.0f); }

// erf(x) within 1.5e-7 (Abramowitz and Stegun, 7.1.26).
inline Vec erf(Vec x) {
  const Vec magnitude = x < 0.0f ? -x : x;
  const Vec t = 1.0f / (magnitude * 0.3275911f + 1.0f);
  Vec p = t * 1.061405429f - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  const Vec y = 1.0f - p * t * exp(-magnitude * magnitude);
  return x < 0.0f ? -y : y;
}

inline Vec activate(int64_t activation, Vec x) {
  switch (activation) {
    case kRelu:
      return x < 0.0f ? Vec{} : x;
    case kSilu:
      return x * logistic(x);
    case kGelu:
      return x * 0.5f * (erf(x * 0.70710678f) + 1.0f);
    case kGeluTanh:  // tanh(u) = 2 logistic(2 u) - 1
      return x * logistic((x * x * 0.044715f + 1.0f) * x * (2 * 0.7978845608f));
    default:
      return x;
  }
}

}  // namespace headway
