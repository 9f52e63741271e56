// Paged attention of many queries a sequence: the entry point.
#include "prefill_vector.h"

namespace headway {

template <int kHeadDim>
int launch_prefill(const PrefillProblem& problem);

}  // namespace headway

HEADWAY_API int headway_prefill_attention(const headway::PrefillProblem* problem) {
  using namespace headway;
  if (problem->num_queries == 0) return 0;
  const bool is_narrow = problem->query_dtype == kFloat16 || problem->query_dtype == kBFloat16;
  if (!is_narrow || (problem->cache_dtype != problem->query_dtype && problem->cache_dtype != kFp8))
    return launch_prefill_vector(*problem);
  if (problem->head_dim <= 64) return launch_prefill<64>(*problem);
  if (problem->head_dim <= 96) return launch_prefill<96>(*problem);
  if (problem->head_dim <= 128) return launch_prefill<128>(*problem);
  return launch_prefill<256>(*problem);
}
