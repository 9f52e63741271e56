// Sums over all threads of a CTA.
#pragma once

#include "device.h"

namespace headway {

constexpr int kMaxWarps = 32;

// In every thread. `shared` has room for kMaxWarps numbers; the CTA has whole warps.
__device__ __forceinline__ float cta_sum(float value, float* shared) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(kAllLanes, value, lanes);
  if (lane_index() == 0) shared[warp_index()] = value;
  __syncthreads();
  float sum = 0;
  for (int warp = 0; warp < static_cast<int>(blockDim.x) / 32; ++warp) sum += shared[warp];
  return sum;
}

}  // namespace headway
