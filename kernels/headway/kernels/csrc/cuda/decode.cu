// Paged decode attention: the entry point.
#include "decode_launch.h"

namespace headway {

extern template DecodeKernel matrix_kernel<64>(const DecodeProblem& problem);
extern template DecodeKernel matrix_kernel<128>(const DecodeProblem& problem);
extern template DecodeKernel matrix_kernel<256>(const DecodeProblem& problem);

// Of a type that both share, or with a cache in fp8, queries of 16 bits go to the tensor cores.
DecodeKernel decode_kernel(const DecodeProblem& problem) {
  const bool is_narrow = problem.query_dtype == kFloat16 || problem.query_dtype == kBFloat16;
  if (is_narrow && (problem.cache_dtype == problem.query_dtype || problem.cache_dtype == kFp8)) {
    if (problem.head_dim <= 64) return matrix_kernel<64>(problem);
    if (problem.head_dim <= 128) return matrix_kernel<128>(problem);
    return matrix_kernel<256>(problem);
  }
  switch (problem.cache_dtype) {
    case kFloat32: return vector_kernel<float>();
    case kFloat16: return vector_kernel<half>();
    case kBFloat16: return vector_kernel<bfloat16>();
    default: return vector_kernel<fp8>();
  }
}

}  // namespace headway

HEADWAY_API int headway_decode_attention(const headway::DecodeProblem* problem) {
  return headway::launch_decode(*problem, headway::decode_kernel(*problem));
}
