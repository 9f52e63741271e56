// The kernels' primitives on a GPU. Asynchronous copies, matrix instructions and number formats are reached through
// these names alone, so that shim/primitives.h can stand in for them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace headway {

using half = __half;
using bfloat16 = __nv_bfloat16;
using fp8 = __nv_fp8_e4m3;

template <class T>
__device__ __forceinline__ float to_float(T value) {
  return static_cast<float>(value);
}

template <class T>
__device__ __forceinline__ T rounded(float value) {
  return T(value);
}

__device__ __forceinline__ uint32_t bits_of(__half2 pair) { return reinterpret_cast<uint32_t&>(pair); }
__device__ __forceinline__ uint32_t bits_of(__nv_bfloat162 pair) { return reinterpret_cast<uint32_t&>(pair); }

template <class T>
__device__ __forceinline__ uint32_t packed_pair(float first, float second) {
  if constexpr (std::is_same_v<T, half>)
    return bits_of(__floats2half2_rn(first, second));
  else
    return bits_of(__floats2bfloat162_rn(first, second));
}

__device__ __forceinline__ __half2 halves_of(uint32_t two_fp8) {
  return __half2(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(two_fp8 & 0xffff), __NV_E4M3));
}

template <class T>
__device__ __forceinline__ void widened(uint32_t four, uint32_t (&pairs)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const __half2 pair = halves_of(four >> 16 * i);
    if constexpr (std::is_same_v<T, half>) {
      pairs[i] = bits_of(pair);
    } else {
      const float2 wide = __half22float2(pair);
      pairs[i] = packed_pair<T>(wide.x, wide.y);
    }
  }
}

template <class T>
__device__ __forceinline__ void load8(const void* from, float (&to)[8]) {
  if constexpr (std::is_same_v<T, fp8>) {
    const uint2 raw = *static_cast<const uint2*>(from);
    const uint32_t words[2] = {raw.x, raw.y};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = __half22float2(halves_of(words[i / 2] >> 16 * (i % 2)));
      to[2 * i] = pair.x;
      to[2 * i + 1] = pair.y;
    }
  } else if constexpr (std::is_same_v<T, float>) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float4 raw = static_cast<const float4*>(from)[i];
      to[4 * i] = raw.x;
      to[4 * i + 1] = raw.y;
      to[4 * i + 2] = raw.z;
      to[4 * i + 3] = raw.w;
    }
  } else {
    const uint4 raw = *static_cast<const uint4*>(from);
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float2 pair;
      if constexpr (std::is_same_v<T, half>)
        pair = __half22float2(reinterpret_cast<const __half2&>(words[i]));
      else
        pair = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(words[i]));
      to[2 * i] = pair.x;
      to[2 * i + 1] = pair.y;
    }
  }
}

__device__ __forceinline__ uint4 load16(const void* from) { return *static_cast<const uint4*>(from); }
__device__ __forceinline__ void store16(void* to, uint4 piece) { *static_cast<uint4*>(to) = piece; }

template <class T>
__device__ __forceinline__ void store8(void* to, const float (&from)[8]) {
  if constexpr (std::is_same_v<T, fp8>) {
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      pairs[i] = __nv_cvt_float2_to_fp8x2(make_float2(from[2 * i], from[2 * i + 1]), __NV_SATFINITE, __NV_E4M3);
    *static_cast<uint2*>(to) = make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
  } else if constexpr (std::is_same_v<T, float>) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      static_cast<float4*>(to)[i] = make_float4(from[4 * i], from[4 * i + 1], from[4 * i + 2], from[4 * i + 3]);
  } else {
    *static_cast<uint4*>(to) = make_uint4(packed_pair<T>(from[0], from[1]), packed_pair<T>(from[2], from[3]),
                                          packed_pair<T>(from[4], from[5]), packed_pair<T>(from[6], from[7]));
  }
}

__device__ __forceinline__ float fast_exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// tanh.approx has 11 bits, too few for scores of 50 and more.
__device__ __forceinline__ float fast_tanh(float x) { return tanhf(x); }

template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char headway_shared[];
  return reinterpret_cast<T*>(headway_shared);
}

__device__ __forceinline__ uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// Where `valid` is false zeros arrive, and nothing is read.
template <int kBytes>
__device__ __forceinline__ void copy_async(void* shared, const void* global, bool valid) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  const int source_bytes = valid ? kBytes : 0;
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
                 "r"(source_bytes)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2, %3;" ::"r"(shared_address(shared)), "l"(global),
                 "n"(kBytes), "r"(source_bytes)
                 : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ void load_matrices(uint32_t (&registers)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&registers)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(shared_address(row))
               : "memory");
}

template <class T>
__device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b_low, uint32_t b_high) {
  if constexpr (std::is_same_v<T, half>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));
}

// Returns 0 or a cudaError_t.
template <class... Parameters, class... Operands>
int launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, int64_t stream,
           Operands... operands) {
  constexpr size_t kWithoutAsking = 48 * 1024;
  if (shared_bytes > kWithoutAsking) {
    const auto error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return error;
  }
  kernel<<<grid, block, shared_bytes, reinterpret_cast<cudaStream_t>(stream)>>>(operands...);
  return cudaGetLastError();
}

// Where the device finds what lies at `host` in pinned memory; returns 0 or a cudaError_t.
inline int find_pinned(unsigned char* host, unsigned char** address) {
  void* found = nullptr;
  const auto error = cudaHostGetDevicePointer(&found, host, 0);
  if (error != cudaSuccess) cudaGetLastError();  // nobody else is to find it
  *address = static_cast<unsigned char*>(found);
  return error;
}

}  // namespace headway
