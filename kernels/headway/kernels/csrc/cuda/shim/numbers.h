// The GPU's narrow floating point formats on the CPU, rounded to nearest, ties to even.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace headway {

// A sign, kExponentBits and kMantissaBits. Without infinities all ones is the only NaN, and what is too large becomes
// the largest number, as the conversion instructions with .satfinite have it.
template <class Bits, int kExponentBits, int kMantissaBits, bool kHasInfinity>
struct Narrow {
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr Bits kMagnitude = static_cast<Bits>((1u << (kExponentBits + kMantissaBits)) - 1);
  static constexpr Bits kInfinity = static_cast<Bits>(((1u << kExponentBits) - 1) << kMantissaBits);
  static constexpr Bits kNan = kMagnitude;
  static constexpr Bits kLargest = static_cast<Bits>((kHasInfinity ? kInfinity : kNan) - 1);

  Bits bits;

  static Narrow from_bits(uint32_t bits) { return {static_cast<Bits>(bits)}; }

  static Narrow rounded(float value) {
    const uint32_t sign = std::signbit(value) ? kMagnitude + 1u : 0u;
    if (std::isnan(value)) return from_bits(sign | kNan);
    if (std::isinf(value)) return from_bits(sign | (kHasInfinity ? kInfinity : kLargest));
    const double magnitude = std::fabs(static_cast<double>(value));
    int exponent = 1 - kBias;  // of the smallest normal number: what is smaller shares its unit
    if (magnitude >= std::ldexp(1.0, exponent)) exponent = std::ilogb(magnitude);
    const double units = std::nearbyint(std::ldexp(magnitude, kMantissaBits - exponent));
    // A carry out of the mantissa arrives in the exponent, where it belongs.
    const double encoded = units + std::ldexp(static_cast<double>(exponent + kBias - 1), kMantissaBits);
    if (encoded > kLargest) return from_bits(sign | (kHasInfinity ? kInfinity : kLargest));
    return from_bits(sign | static_cast<uint32_t>(encoded));
  }

  explicit operator float() const {
    const uint32_t magnitude = bits & kMagnitude;
    const float sign = bits > kMagnitude ? -1.0f : 1.0f;
    if (magnitude > kLargest)
      return kHasInfinity && magnitude == kInfinity ? sign * std::numeric_limits<float>::infinity()
                                                    : std::numeric_limits<float>::quiet_NaN();
    const uint32_t exponent = magnitude >> kMantissaBits;
    if (exponent == 0) return sign * std::ldexp(static_cast<float>(magnitude), 1 - kBias - kMantissaBits);
    const uint32_t wide = magnitude + (static_cast<uint32_t>(127 - kBias) << kMantissaBits);
    const uint32_t bits32 = wide << (23 - kMantissaBits);
    float result;
    std::memcpy(&result, &bits32, sizeof result);
    return sign * result;
  }
};

using half = Narrow<uint16_t, 5, 10, true>;
using bfloat16 = Narrow<uint16_t, 8, 7, true>;
using fp8 = Narrow<uint8_t, 4, 3, false>;  // e4m3

}  // namespace headway
