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

template <class T>
__device__ __forceinline__ void unpacked_pair(uint32_t pair, float& first, float& second) {
  float2 wide;
  if constexpr (std::is_same_v<T, half>)
    wide = __half22float2(reinterpret_cast<const __half2&>(pair));
  else
    wide = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(pair));
  first = wide.x;
  second = wide.y;
}

// Four fp8 numbers as two pairs in fp16. The instruction takes either half of a register; an intrinsic for 16 bits
// would have the upper half moved first.
__device__ __forceinline__ void widened_to_half(uint32_t four, uint32_t (&pairs)[2]) {
#if __CUDA_ARCH__ >= 890
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, low;}" : "=r"(pairs[0]) : "r"(four));
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, high;}" : "=r"(pairs[1]) : "r"(four));
#else
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const auto two = static_cast<__nv_fp8x2_storage_t>(four >> 16 * i & 0xffff);
    pairs[i] = bits_of(__half2(__nv_cvt_fp8x2_to_halfraw2(two, __NV_E4M3)));
  }
#endif
}

template <class T>
__device__ __forceinline__ void widened(uint32_t four, uint32_t (&pairs)[2]) {
  widened_to_half(four, pairs);
  if constexpr (!std::is_same_v<T, half>) {
#pragma unroll
    for (uint32_t& pair : pairs) {
      float first, second;
      unpacked_pair<half>(pair, first, second);
      pair = packed_pair<T>(first, second);
    }
  }
}

// Bytes 0, 2, 1 and 3 of four.
__device__ __forceinline__ uint32_t middle_swapped(uint32_t four) { return __byte_perm(four, 0, 0x3120); }

template <class T>
__device__ __forceinline__ void load8(const void* from, float (&to)[8]) {
  if constexpr (std::is_same_v<T, fp8>) {
    const uint2 raw = *static_cast<const uint2*>(from);
    uint32_t pairs[2][2];
    widened_to_half(raw.x, pairs[0]);
    widened_to_half(raw.y, pairs[1]);
#pragma unroll
    for (int i = 0; i < 4; ++i) unpacked_pair<half>(pairs[i / 2][i % 2], to[2 * i], to[2 * i + 1]);
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
    for (int i = 0; i < 4; ++i) unpacked_pair<T>(words[i], to[2 * i], to[2 * i + 1]);
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

__device__ __forceinline__ uint32_t transposed(uint32_t pair) {
  uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
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

// From when all CTAs have called it or are done, a kernel that was launched early behind this one may start.
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// In a kernel that is launched early, before it reads what the last one writes, and by every CTA before it is done.
__device__ __forceinline__ void wait_for_last() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

template <class... Parameters>
cudaError_t allow_shared_bytes(void (*kernel)(Parameters...), size_t shared_bytes) {
  constexpr size_t kWithoutAsking = 48 * 1024;
  if (shared_bytes <= kWithoutAsking) return cudaSuccess;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
}

// Returns 0 or a cudaError_t.
template <class... Parameters, class... Operands>
int launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, int64_t stream,
           Operands... operands) {
  if (const auto error = allow_shared_bytes(kernel, shared_bytes)) return error;
  kernel<<<grid, block, shared_bytes, reinterpret_cast<cudaStream_t>(stream)>>>(operands...);
  return cudaGetLastError();
}

// As `launch`, of a kernel that calls `wait_for_last`: it may start while the one before it in the stream still runs.
template <class... Parameters, class... Operands>
int launch_early(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, int64_t stream,
                 Operands... operands) {
  int device = 0, major = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{grid, block, shared_bytes, reinterpret_cast<cudaStream_t>(stream), &attribute, 1};
  if (major < 9) config.numAttrs = 0;
  if (const auto error = allow_shared_bytes(kernel, shared_bytes)) return error;
  cudaLaunchKernelEx(&config, kernel, operands...);
  return cudaGetLastError();
}

// CTAs that the current device runs side by side. Returns 0 or a cudaError_t.
template <class... Parameters>
int count_resident_ctas(void (*kernel)(Parameters...), int num_threads, size_t shared_bytes, int64_t& num_ctas) {
  int device = 0, num_sms = 0, ctas_per_sm = 0;
  auto error = allow_shared_bytes(kernel, shared_bytes);
  if (!error) error = cudaGetDevice(&device);
  if (!error) error = cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, device);
  if (!error) error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&ctas_per_sm, kernel, num_threads, shared_bytes);
  num_ctas = int64_t{ctas_per_sm} * num_sms;
  return error;
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
