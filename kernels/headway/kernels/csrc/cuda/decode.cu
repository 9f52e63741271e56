// Paged decode attention: the entry point.
#include "decode_launch.h"

namespace headway {

extern template int launch_decode<64>(const DecodeProblem& problem);
extern template int launch_decode<128>(const DecodeProblem& problem);
extern template int launch_decode<256>(const DecodeProblem& problem);

}  // namespace headway

HEADWAY_API int headway_decode_attention(const headway::DecodeProblem* problem) {
  using namespace headway;
  // Caches in float32 are for checks and small models: one kernel serves heads of all sizes.
  if (problem->cache_dtype == kFloat32) return launch_vector<float, 256>(*problem);
  if (problem->head_dim <= 64) return launch_decode<64>(*problem);
  if (problem->head_dim <= 128) return launch_decode<128>(*problem);
  return launch_decode<256>(*problem);
}
