// Copies of memory in pieces of 16 bytes.
#pragma once

#include "device.h"

namespace headway {

// By all threads of a CTA; both places are aligned to 16 bytes, of which `num_bytes` is a multiple.
__device__ __forceinline__ void copy_pieces(const unsigned char* from, unsigned char* to, int64_t num_bytes) {
  constexpr int kAtOnce = 4;  // on their way for each thread
  const int num_pieces = static_cast<int>(num_bytes / 16);
  for (int first = static_cast<int>(threadIdx.x); first < num_pieces; first += kAtOnce * kThreads) {
    uint4 pieces[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (first + i * kThreads < num_pieces) pieces[i] = load16(from + int64_t{16} * (first + i * kThreads));
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (first + i * kThreads < num_pieces) store16(to + int64_t{16} * (first + i * kThreads), pieces[i]);
  }
}

}  // namespace headway
