// One register of floats and what the kernels do with it. The same source serves every instruction set: the
// register's width follows the compiler's flags, GCC's vector extensions choose the instructions.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace headway {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
constexpr int kAccumulators = 16;  // registers that a block of a matrix product may sum in, of 32
#elif defined(__AVX2__)
constexpr int kLanes = 8;
constexpr int kAccumulators = 8;  // of 16
#else
constexpr int kLanes = 4;
constexpr int kAccumulators = 8;  // of 16 (x86-64) or 32 (AArch64)
#endif

typedef float Vec __attribute__((vector_size(kLanes * 4)));
typedef int32_t IntVec __attribute__((vector_size(kLanes * 4)));
typedef uint32_t UintVec __attribute__((vector_size(kLanes * 4)));
typedef uint16_t HalfVec __attribute__((vector_size(kLanes * 2)));
typedef int8_t ByteVec __attribute__((vector_size(kLanes)));

struct bfloat16 {
  uint16_t bits;  // the upper half of a float32
};

// How many lanes a load or a store touches: all of them, or only the first few at a row's end.
struct Full {};
struct Partial {
  int num_lanes;
};

// Calls step(i, Full or Partial) for i = 0, kLanes, ... until [0, n) is covered.
template <class Step>
inline void for_each_vec(int64_t n, Step step) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) step(i, Full{});
  if (i < n) step(i, Partial{static_cast<int>(n - i)});
}

inline int64_t round_up_to_vec(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

inline Vec broadcast(float x) { return x - Vec{}; }

inline Vec select(IntVec mask, Vec yes, Vec no) { return mask ? yes : no; }

inline Vec max(Vec a, Vec b) { return a > b ? a : b; }

// ---- memory -------------------------------------------------------------------------------------------------

inline Vec load(const float* p, Full = {}) {
  Vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

inline float widen(float x) { return x; }

inline float widen(bfloat16 x) {
  const uint32_t bits = uint32_t{x.bits} << 16;
  float wide;
  std::memcpy(&wide, &bits, sizeof wide);
  return wide;
}

inline Vec widen(HalfVec half) { return reinterpret_cast<Vec>(__builtin_convertvector(half, UintVec) << 16); }

inline Vec load(const bfloat16* p, Full = {}) {
  HalfVec half;
  std::memcpy(&half, p, sizeof half);
  return widen(half);
}

// GCC 12 widens bytes one by one unless it is told the instruction.
inline Vec load(const int8_t* p) {
#if defined(__AVX512F__)
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif defined(__AVX2__)
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
  ByteVec bytes;
  std::memcpy(&bytes, p, sizeof bytes);
  return __builtin_convertvector(__builtin_convertvector(bytes, IntVec), Vec);
#endif
}

inline Vec load(const float* p, Partial part) {
  Vec v{};
  std::memcpy(&v, p, part.num_lanes * sizeof *p);
  return v;
}

inline Vec load(const bfloat16* p, Partial part) {
  HalfVec half{};
  std::memcpy(&half, p, part.num_lanes * sizeof *p);
  return widen(half);
}

// Rounds to the nearest bfloat16, ties to even; a NaN stays one.
inline HalfVec narrow(Vec v) {
#if defined(__AVX512BF16__)
  return reinterpret_cast<HalfVec>(_mm512_cvtneps_pbh(v));
#else
  const UintVec bits = reinterpret_cast<UintVec>(v);
  const UintVec rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const UintVec quiet_nan = (bits >> 16) | 0x40;
  return __builtin_convertvector(v == v ? rounded : quiet_nan, HalfVec);
#endif
}

inline void store(float* p, Vec v, Full = {}) { std::memcpy(p, &v, sizeof v); }

inline void store(float* p, Vec v, Partial part) { std::memcpy(p, &v, part.num_lanes * sizeof *p); }

inline void store(bfloat16* p, Vec v, Full = {}) {
  const HalfVec half = narrow(v);
  std::memcpy(p, &half, sizeof half);
}

inline void store(bfloat16* p, Vec v, Partial part) {
  const HalfVec half = narrow(v);
  std::memcpy(p, &half, part.num_lanes * sizeof *p);
}

template <class From, class To>
inline void copy_row(const From* from, To* to, int64_t n) {
  for_each_vec(n, [=](int64_t i, auto lanes) { store(to + i, load(from + i, lanes), lanes); });
}

// The elements of a row go to `to`, `stride` elements apart.
template <class From, class To>
inline void scatter_row(const From* from, To* to, int64_t stride, int64_t n) {
  for_each_vec(n, [=](int64_t i, auto lanes) {
    To row[kLanes];
    store(row, load(from + i, lanes));
    const int64_t count = n - i < kLanes ? n - i : kLanes;
    for (int64_t k = 0; k < count; ++k) to[(i + k) * stride] = row[k];
  });
}

// ---- pairs of bfloat16, the first one in the lower half of each lane ------------------------------------------

inline UintVec load_pairs(const bfloat16* p) {
  UintVec pairs;
  std::memcpy(&pairs, p, sizeof pairs);
  return pairs;
}

inline Vec widen_first(UintVec pairs) { return reinterpret_cast<Vec>(pairs << 16); }

inline Vec widen_second(UintVec pairs) { return reinterpret_cast<Vec>(pairs & 0xffff0000); }

// ---- across lanes -------------------------------------------------------------------------------------------

template <int... kLane>
inline IntVec lane_numbers(std::integer_sequence<int, kLane...>) {
  return IntVec{kLane...};
}

inline IntVec lane_numbers() { return lane_numbers(std::make_integer_sequence<int, kLanes>{}); }

// Folds halves together until every lane holds the result; the order is fixed, so the rounding is too.
template <class Combine>
inline float fold(Vec v, Combine combine) {
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    v = combine(v, __builtin_shuffle(v, lane_numbers() ^ distance));
  return v[0];
}

inline float sum(Vec v) {
  return fold(v, [](Vec a, Vec b) { return a + b; });
}

inline float max(Vec v) {
  return fold(v, [](Vec a, Vec b) { return max(a, b); });
}

// rows[i] holds kLanes / kUnit units of kUnit lanes; afterwards unit j of row i is what unit i of row j was.
template <int kUnit, int kDistance = 1>
inline void transpose_units(IntVec (&rows)[kLanes / kUnit]) {
  constexpr int kRows = kLanes / kUnit, kShift = kDistance * kUnit;
  if constexpr (kDistance < kRows) {
    const IntVec lanes = lane_numbers(), is_upper = (lanes & kShift) != 0;
    const IntVec lower = is_upper ? lanes + (kLanes - kShift) : lanes;
    const IntVec upper = is_upper ? lanes + kLanes : lanes + kShift;
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      if (i & kDistance) continue;
      const IntVec first = rows[i], second = rows[i + kDistance];
      rows[i] = __builtin_shuffle(first, second, lower);
      rows[i + kDistance] = __builtin_shuffle(first, second, upper);
    }
    transpose_units<kUnit, 2 * kDistance>(rows);
  }
}

// ---- 1 / x --------------------------------------------------------------------------------------------------

// Within 2 units in the last place, in a third of a division's time, where the processor has a first guess of 14 bits. What
// would be denormal is 0.
inline Vec reciprocal(Vec x) {
#if defined(__AVX512F__)
  const Vec guess = reinterpret_cast<Vec>(_mm512_rcp14_ps(reinterpret_cast<__m512>(x)));
  return guess * (2.0f - x * guess);
#else
  return 1.0f / x;
#endif
}

// ---- exp ----------------------------------------------------------------------------------------------------

// e^x within 2 units in the last place: x = n ln 2 + r with |r| <= ln(2)/2, a Taylor polynomial of degree 7 for e^r
// (its remainder is below 6e-9), and 2^n put into the exponent. Underflows to 0 and saturates at 2.4e38.
inline Vec exp(Vec x) {
  constexpr float kLog2E = 1.44269504089f;
  constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;  // the high part times n is exact
  constexpr float kRound = 12582912.0f;                                // 1.5 * 2^23: adding it rounds to an integer
  constexpr float kLowest = -87.33654f, kHighest = 88.37626f;
  const IntVec underflow = x < kLowest;
  x = x > kHighest ? broadcast(kHighest) : x;
  x = underflow ? broadcast(kLowest) : x;
  const Vec n = (x * kLog2E + kRound) - kRound;
  const Vec r = (x - n * kLn2High) - n * kLn2Low;
  Vec p = r * (1.0f / 5040) + (1.0f / 720);
  p = p * r + (1.0f / 120);
  p = p * r + (1.0f / 24);
  p = p * r + (1.0f / 6);
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const Vec power = reinterpret_cast<Vec>((__builtin_convertvector(n, IntVec) + 127) << 23);
  return underflow ? Vec{} : p * power;
}

}  // namespace headway
