// What every kernel includes: the primitives of a GPU, or their emulation where a C++ compiler reads the same source.
#pragma once

#if defined(__CUDACC__)
#include "gpu/primitives.h"
#else
#include "shim/primitives.h"
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>

#define HEADWAY_API extern "C" __attribute__((visibility("default")))

namespace headway {

constexpr int kWarps = 4;  // of a CTA
constexpr int kThreads = 32 * kWarps;
constexpr uint32_t kAllLanes = 0xffffffffu;
constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

enum Dtype : int64_t { kFloat32 = 0, kBFloat16 = 1, kFloat16 = 2, kFp8 = 3 };  // as in cuda/kernels.py
constexpr int kUnsupported = -2;  // what an entry point returns; as in cuda/kernels.py

__device__ __forceinline__ int lane_index() { return static_cast<int>(threadIdx.x) % 32; }
__device__ __forceinline__ int warp_index() { return static_cast<int>(threadIdx.x) / 32; }

// -infinity, in the way that needs no header of either compiler.
__device__ __forceinline__ float negative_infinity() { return -INFINITY; }

// Eight numbers in a row, and one, in whichever type `dtype` says.
__device__ __forceinline__ void load_numbers(const void* from, int64_t dtype, int64_t offset, float (&to)[8]) {
  if (dtype == kFloat32)
    load8<float>(static_cast<const float*>(from) + offset, to);
  else if (dtype == kFloat16)
    load8<half>(static_cast<const half*>(from) + offset, to);
  else if (dtype == kBFloat16)
    load8<bfloat16>(static_cast<const bfloat16*>(from) + offset, to);
  else
    load8<fp8>(static_cast<const fp8*>(from) + offset, to);
}
__device__ __forceinline__ void store_number(void* to, int64_t dtype, int64_t offset, float value) {
  if (dtype == kFloat32)
    static_cast<float*>(to)[offset] = value;
  else if (dtype == kFloat16)
    static_cast<half*>(to)[offset] = rounded<half>(value);
  else
    static_cast<bfloat16*>(to)[offset] = rounded<bfloat16>(value);
}

}  // namespace headway
