// Which decode kernel serves a problem. It is compiled for head sizes up to 64, 128 and 256, each in a file of its own (decode_*.cu).
#pragma once

#include "decode_matrix.h"
#include "decode_vector.h"

namespace headway {

template <class Kernel>
int launch_decode_kernel(const DecodeProblem& problem, Kernel kernel, int heads_per_tile, size_t shared_bytes) {
  const auto group = static_cast<int>(problem.num_heads / problem.num_kv_heads);
  const int tiles = (group + heads_per_tile - 1) / heads_per_tile;
  const dim3 grid{static_cast<unsigned>(problem.num_kv_heads * tiles), static_cast<unsigned>(problem.num_work), 1};
  return launch(kernel, grid, dim3{kThreads, 1, 1}, shared_bytes, problem.stream, problem, ScoreOptions(problem),
                tiles);
}

template <class Cache, int kHeadDim>
int launch_vector(const DecodeProblem& problem) {
  using Decode = VectorDecode<Cache, kHeadDim>;
  return launch_decode_kernel(problem, decode_vector<Cache, kHeadDim>, Decode::kHeads, sizeof(typename Decode::Shared));
}

template <class T, class Cache, int kHeadDim>
int launch_matrix(const DecodeProblem& problem) {
  using Decode = MatrixDecode<T, Cache, kHeadDim>;
  return launch_decode_kernel(problem, decode_matrix<T, Cache, kHeadDim>, Decode::kRows, Decode::kSharedBytes);
}

template <class T, class Cache, int kHeadDim>
int launch_either(const DecodeProblem& problem, Dtype dtype) {
  const bool has_many_heads = problem.num_heads > VectorDecode<Cache, kHeadDim>::kHeads * problem.num_kv_heads;
  if (problem.query_dtype == dtype && has_many_heads) return launch_matrix<T, Cache, kHeadDim>(problem);
  return launch_vector<Cache, kHeadDim>(problem);
}

template <int kHeadDim>
int launch_decode(const DecodeProblem& problem) {
  switch (problem.cache_dtype) {
    case kFloat16: return launch_either<half, half, kHeadDim>(problem, kFloat16);
    case kBFloat16: return launch_either<bfloat16, bfloat16, kHeadDim>(problem, kBFloat16);
    case kFp8:
      return problem.query_dtype == kFloat16 ? launch_either<half, fp8, kHeadDim>(problem, kFloat16)
                                             : launch_either<bfloat16, fp8, kHeadDim>(problem, kBFloat16);
    default: return kUnsupported;
  }
}

}  // namespace headway
