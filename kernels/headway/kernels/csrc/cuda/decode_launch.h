// Which decode kernel serves a problem. Those on the tensor cores are compiled for head sizes up to 64, 128 and 256,
// each in a file of its own (decode_*.cu).
#pragma once

#include "decode_matrix.h"
#include "decode_vector.h"

namespace headway {

struct DecodeKernel {
  void (*function)(const DecodeProblem, const ScoreOptions, int tiles_per_group);
  int heads_per_cta;
  size_t shared_bytes;

  int tiles_per_group(const DecodeShape& shape) const {
    return static_cast<int>((shape.num_heads / shape.num_kv_heads + heads_per_cta - 1) / heads_per_cta);
  }
};

template <class Cache>
DecodeKernel vector_kernel() {
  using Decode = VectorDecode<Cache>;
  return {decode_vector<Cache>, Decode::kHeads, sizeof(typename Decode::Shared)};
}

template <class Cache, int kHeadDim, int kTiles>
DecodeKernel matrix_kernel() {
  using Decode = MatrixDecode<Cache, kHeadDim, kTiles>;
  return {decode_matrix<Cache, kHeadDim, kTiles>, Decode::kHeads, sizeof(typename Decode::Shared)};
}

template <class Cache, int kHeadDim>
DecodeKernel matrix_kernel(int64_t group) {
  if constexpr (kHeadDim <= 128)  // the registers hold no more numbers of heads
    if (group > 8) return matrix_kernel<Cache, kHeadDim, 2>();
  return matrix_kernel<Cache, kHeadDim, 1>();
}

template <int kHeadDim>
DecodeKernel matrix_kernel(const DecodeShape& shape) {
  const int64_t group = shape.num_heads / shape.num_kv_heads;
  switch (shape.cache_dtype) {
    case kFloat16: return matrix_kernel<half, kHeadDim>(group);
    case kBFloat16: return matrix_kernel<bfloat16, kHeadDim>(group);
    default: return matrix_kernel<fp8, kHeadDim>(group);
  }
}

inline int launch_decode(const DecodeProblem& problem, const DecodeKernel& kernel) {
  const int tiles = kernel.tiles_per_group(problem);
  const dim3 grid{static_cast<unsigned>(problem.num_kv_heads * tiles), static_cast<unsigned>(problem.num_slots), 1};
  return launch(kernel.function, grid, dim3{kThreads, 1, 1}, kernel.shared_bytes, problem.stream, problem,
                ScoreOptions(problem), tiles);
}

}  // namespace headway
