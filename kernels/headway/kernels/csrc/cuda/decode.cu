// Paged decode attention: the entry points.
#include "decode_launch.h"

namespace headway {

extern template DecodeKernel matrix_kernel<64>(const DecodeShape& shape);
extern template DecodeKernel matrix_kernel<128>(const DecodeShape& shape);
extern template DecodeKernel matrix_kernel<256>(const DecodeShape& shape);

// Of a type that both share, or with a cache in fp8, queries of 16 bits go to the tensor cores.
DecodeKernel decode_kernel(const DecodeShape& shape) {
  const bool is_narrow = shape.query_dtype == kFloat16 || shape.query_dtype == kBFloat16;
  if (is_narrow && (shape.cache_dtype == shape.query_dtype || shape.cache_dtype == kFp8)) {
    if (shape.head_dim <= 64) return matrix_kernel<64>(shape);
    if (shape.head_dim <= 128) return matrix_kernel<128>(shape);
    return matrix_kernel<256>(shape);
  }
  switch (shape.cache_dtype) {
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

// How many ranges of keys the current device attends to side by side: what `DecodeProblem::num_slots` is best set to.
HEADWAY_API int headway_decode_slots(const headway::DecodeShape* shape, int64_t* num_slots) {
  using namespace headway;
  const DecodeKernel kernel = decode_kernel(*shape);
  int64_t num_ctas = 0;
  const int error = count_resident_ctas(kernel.function, kThreads, kernel.shared_bytes, num_ctas);
  const int64_t ctas_per_range = shape->num_kv_heads * kernel.tiles_per_group(*shape);
  *num_slots = num_ctas > ctas_per_range ? num_ctas / ctas_per_range : 1;
  return error;
}
