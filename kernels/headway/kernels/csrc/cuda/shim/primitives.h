// The kernels' primitives on the CPU: the same names and meanings as gpu/primitives.h.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>

#include "cta.h"
#include "numbers.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__

struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct alignas(8) uint2 {
  uint32_t x, y;
};

inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  headway::shim::meet_cta({file, line});
}

inline void __syncwarp(uint32_t mask = 0xffffffffu, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  headway::shim::meet_warp("__syncwarp", mask, {file, line}, nullptr, [](void**) {});
}

namespace headway::shim {

struct Shuffle {
  uint64_t value;
  uint32_t source;
  uint64_t result;
};

inline void exchange_shuffle(void** operands) {
  for (int lane = 0; lane < kLanes; ++lane) {
    auto* mine = static_cast<Shuffle*>(operands[lane]);
    if (!mine) continue;
    mine->result = static_cast<Shuffle*>(operands[mine->source % kLanes])->value;
  }
}

template <class T>
T shuffled(const char* operation, uint32_t mask, T value, int source, Place place) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  Shuffle operand{0, static_cast<uint32_t>(source), 0};
  std::memcpy(&operand.value, &value, sizeof(T));
  if (!(mask >> (source % kLanes) & 1)) fail("a shuffle reads from a lane that takes no part", place);
  meet_warp(operation, mask, place, &operand, &exchange_shuffle);
  std::memcpy(&value, &operand.result, sizeof(T));
  return value;
}

inline void exchange_ballot(void** operands) {
  uint32_t ballot = 0;
  for (int lane = 0; lane < kLanes; ++lane)
    if (operands[lane] && static_cast<Shuffle*>(operands[lane])->value) ballot |= 1u << lane;
  for (int lane = 0; lane < kLanes; ++lane)
    if (operands[lane]) static_cast<Shuffle*>(operands[lane])->result = ballot;
}

inline int lane() {
  return static_cast<int>((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % kLanes);
}

}  // namespace headway::shim

template <class T>
T __shfl_sync(uint32_t mask, T value, int source, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return headway::shim::shuffled("__shfl_sync", mask, value, source, {file, line});
}

template <class T>
T __shfl_xor_sync(uint32_t mask, T value, int lanes, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return headway::shim::shuffled("__shfl_xor_sync", mask, value, headway::shim::lane() ^ lanes, {file, line});
}

// A lane below which there are none keeps its own value.
template <class T>
T __shfl_up_sync(uint32_t mask, T value, int lanes, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const int lane = headway::shim::lane();
  return headway::shim::shuffled("__shfl_up_sync", mask, value, lane < lanes ? lane : lane - lanes, {file, line});
}

inline uint32_t __ballot_sync(uint32_t mask, bool vote, const char* file = __builtin_FILE(),
                              int line = __builtin_LINE()) {
  headway::shim::Shuffle operand{vote, 0, 0};
  headway::shim::meet_warp("__ballot_sync", mask, {file, line}, &operand, &headway::shim::exchange_ballot);
  return static_cast<uint32_t>(operand.result);
}

// CTAs and their threads run one at a time.
template <class T>
T atomicAdd(T* address, T value) {
  return std::exchange(*address, *address + value);
}
template <class T>
T atomicMax(T* address, T value) {
  return std::exchange(*address, *address > value ? *address : value);
}

inline uint32_t __float_as_uint(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float __uint_as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return static_cast<uint32_t>(uint64_t{a} * b >> 32); }
inline uint64_t __umul64hi(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
}

namespace headway {

template <class T>
float to_float(T value) {
  return static_cast<float>(value);
}
template <class T>
T rounded(float value) {
  return T::rounded(value);
}
template <>
inline float rounded<float>(float value) {
  return value;
}

// Eight numbers in a row, aligned to their size, or to 16 bytes.
template <class T>
void load8(const void* from, float (&to)[8], const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  T values[8];
  shim::check_aligned(from, sizeof(T) < 2 ? 8 : 16, {file, line});
  std::memcpy(values, from, sizeof values);
  for (int i = 0; i < 8; ++i) to[i] = to_float(values[i]);
}
template <class T>
void store8(void* to, const float (&from)[8], const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  T values[8];
  shim::check_aligned(to, sizeof(T) < 2 ? 8 : 16, {file, line});
  for (int i = 0; i < 8; ++i) values[i] = rounded<T>(from[i]);
  std::memcpy(to, values, sizeof values);
}

// 16 bytes, aligned to as many.
inline uint4 load16(const void* from, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  uint4 piece;
  shim::check_aligned(from, sizeof piece, {file, line});
  std::memcpy(&piece, from, sizeof piece);
  return piece;
}
inline void store16(void* to, uint4 piece, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  shim::check_aligned(to, sizeof piece, {file, line});
  std::memcpy(to, &piece, sizeof piece);
}

// Two numbers of 16 bits in one register, the first in the lower half.
template <class T>
uint32_t packed_pair(float first, float second) {
  return T::rounded(first).bits | static_cast<uint32_t>(T::rounded(second).bits) << 16;
}

template <class T>
void unpacked_pair(uint32_t pair, float& first, float& second) {
  first = static_cast<float>(T::from_bits(pair & 0xffff));
  second = static_cast<float>(T::from_bits(pair >> 16));
}

// Bytes 0, 2, 1 and 3 of four.
inline uint32_t middle_swapped(uint32_t four) {
  return (four & 0xff0000ffu) | (four >> 8 & 0xff00u) | (four << 8 & 0xff0000u);
}

// Four fp8 numbers as two registers of pairs; no number of that format is rounded.
template <class T>
void widened(uint32_t four, uint32_t (&pairs)[2]) {
  const auto value = [four](int i) { return static_cast<float>(fp8::from_bits(four >> 8 * i & 0xff)); };
  for (int i = 0; i < 2; ++i) pairs[i] = packed_pair<T>(value(2 * i), value(2 * i + 1));
}

inline float fast_exp2(float x) { return std::exp2(x); }
inline float fast_tanh(float x) { return std::tanh(x); }

template <class T>
T* dynamic_shared() {
  return reinterpret_cast<T*>(shim::shared_memory());
}

template <int kBytes>
void copy_async(void* shared, const void* global, bool valid, const char* file = __builtin_FILE(),
                int line = __builtin_LINE()) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  shim::start_copy(shared, global, kBytes, valid, {file, line});
}
inline void commit_copies() { shim::commit_copies(); }
template <int kPending>
void wait_copies() {
  shim::wait_copies(kPending);
}

namespace shim {

struct Matrices {
  const void* row;
  uint32_t registers[4];
  bool has_conflict;
};

// Whether two of a matrix's eight rows lie in the same banks: each is a piece of 16 bytes of the 128 that all banks have.
inline bool has_conflict(void** operands, int matrix) {
  unsigned pieces = 0;
  for (int row = 0; row < 8; ++row) {
    const auto address = reinterpret_cast<uintptr_t>(static_cast<Matrices*>(operands[8 * matrix + row])->row);
    pieces |= 1u << address / 16 % 8;
  }
  return pieces != 0xff;
}

// Lane 8 m + r points at row r of matrix m, eight numbers of 16 bits; lane 4 i + j gets numbers 2 j and 2 j + 1 of
// row i, or where kTransposed of column i.
template <bool kTransposed>
void exchange_matrices(void** operands) {
  for (int lane = 0; lane < kLanes; ++lane)
    for (int m = 0; m < 4; ++m) {
      uint32_t pair = 0;
      for (int k = 0; k < 2; ++k) {
        const int i = lane / 4, j = lane % 4 * 2 + k;
        const auto* row = static_cast<const uint16_t*>(
            static_cast<Matrices*>(operands[8 * m + (kTransposed ? j : i)])->row);
        pair |= static_cast<uint32_t>(row[kTransposed ? i : j]) << 16 * k;
      }
      static_cast<Matrices*>(operands[lane])->registers[m] = pair;
      static_cast<Matrices*>(operands[lane])->has_conflict |= has_conflict(operands, m);
    }
}

template <bool kTransposed>
void load_matrices(uint32_t (&registers)[4], const void* row, Place place) {
  Matrices operand{row, {}, false};
  if (!is_shared(row, 16)) fail("a row of a matrix lies outside shared memory", place);
  if (reinterpret_cast<uintptr_t>(row) % 16) fail("a row of a matrix is not aligned to 16 bytes", place);
  meet_warp("ldmatrix", 0xffffffffu, place, &operand, &exchange_matrices<kTransposed>);
  if (operand.has_conflict) fail("rows of a matrix lie in the same banks", place);
  std::memcpy(registers, operand.registers, sizeof registers);
}

// Lane 4 i + j holds numbers 2 j and 2 j + 1 of row i of a matrix, and gets those of column i.
inline void exchange_transposed(void** operands) {
  uint16_t matrix[8][8];
  for (int lane = 0; lane < kLanes; ++lane) std::memcpy(&matrix[lane / 4][lane % 4 * 2], operands[lane], 4);
  for (int lane = 0; lane < kLanes; ++lane) {
    const int column = lane / 4, row = lane % 4 * 2;
    *static_cast<uint32_t*>(operands[lane]) = matrix[row][column] | uint32_t{matrix[row + 1][column]} << 16;
  }
}

struct Product {
  const uint32_t* a;
  uint32_t b[2];
  float* c;
};

// Fragments as the PTX manual draws them for mma.m16n8k16 of 16 bit types.
template <class T>
void exchange_product(void** operands) {
  const auto number = [](uint32_t pair, int k) { return static_cast<float>(T::from_bits(pair >> 16 * k & 0xffff)); };
  float a[16][16], b[16][8];
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto* operand = static_cast<Product*>(operands[lane]);
    const int group = lane / 4, column = lane % 4 * 2;
    for (int r = 0; r < 4; ++r)
      for (int k = 0; k < 2; ++k) a[group + r % 2 * 8][column + k + r / 2 * 8] = number(operand->a[r], k);
    for (int r = 0; r < 2; ++r)
      for (int k = 0; k < 2; ++k) b[column + k + r * 8][group] = number(operand->b[r], k);
  }
  for (int lane = 0; lane < kLanes; ++lane)
    for (int r = 0; r < 4; ++r) {
      const int row = lane / 4 + r / 2 * 8, column = lane % 4 * 2 + r % 2;
      float sum = 0;
      for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
      static_cast<Product*>(operands[lane])->c[r] += sum;
    }
}

}  // namespace shim

inline void load_matrices(uint32_t (&registers)[4], const void* row, const char* file = __builtin_FILE(),
                          int line = __builtin_LINE()) {
  shim::load_matrices<false>(registers, row, {file, line});
}
inline void load_matrices_transposed(uint32_t (&registers)[4], const void* row, const char* file = __builtin_FILE(),
                                     int line = __builtin_LINE()) {
  shim::load_matrices<true>(registers, row, {file, line});
}

// A matrix of 8 rows of 8 numbers of 16 bits, in registers of the warp's lanes.
inline uint32_t transposed(uint32_t pair, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  shim::meet_warp("movmatrix", 0xffffffffu, {file, line}, &pair, &shim::exchange_transposed);
  return pair;
}

// c += a b, of [16, 16], [16, 8] in T and [16, 8] in float, in fragments of the warp's lanes.
template <class T>
void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b_low, uint32_t b_high,
                  const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  shim::Product operand{a, {b_low, b_high}, c};
  shim::meet_warp("mma", 0xffffffffu, {file, line}, &operand, &shim::exchange_product<T>);
}

namespace shim {

template <class... Parameters, class... Operands>
int launch_kernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, bool is_early,
                  Operands... operands) {
  struct Call {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> operands;
  } call{kernel, {operands...}};
  const auto run = [](void* argument) {
    auto* call = static_cast<Call*>(argument);
    std::apply(call->kernel, call->operands);
  };
  return launch({run, &call, grid, block, shared_bytes, is_early}) ? 0 : -1;
}

}  // namespace shim

// The stream's integer means nothing here: the kernel has run when this returns.
template <class... Parameters, class... Operands>
int launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, int64_t, Operands... operands) {
  return shim::launch_kernel(kernel, grid, block, shared_bytes, false, operands...);
}
template <class... Parameters, class... Operands>
int launch_early(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, int64_t,
                 Operands... operands) {
  return shim::launch_kernel(kernel, grid, block, shared_bytes, true, operands...);
}
inline void let_next_start() {}
inline void wait_for_last() { shim::wait_for_last(); }

// As a small GPU has it, and enough to cut a few hundred keys into ranges.
template <class... Parameters>
int count_resident_ctas(void (*)(Parameters...), int, size_t, int64_t& num_ctas) {
  num_ctas = 16;
  return 0;
}

// Pinned memory lies where the host has it.
inline int find_pinned(unsigned char* host, unsigned char** address) {
  *address = host;
  return 0;
}

}  // namespace headway
