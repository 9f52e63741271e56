// One attention over keys that lie in several shards, from what each shard made of its own.
#include "abi.h"
#include "softmax.h"
#include "team.h"

namespace headway {

struct MergeProblem {
  int64_t num_threads, out_dtype;
  void* out;
  int64_t out_token_stride, out_head_stride;  // elements from one to the next
  const float* partials;                      // head_dim values, then the log of the softmax's sum
  int64_t shard_stride, token_stride, head_stride;
  int64_t num_shards, num_tokens, num_heads, head_dim;
};

namespace {

constexpr int64_t kMaxHeadDim = 512;  // as in operands.py

// `partial` is one row's of the first shard.
template <class Out>
void merge_row(const MergeProblem& problem, const float* partial, Out* out) {
  const int64_t head_dim = problem.head_dim;
  const float* end = partial + problem.num_shards * problem.shard_stride;
  float max = kNegativeInfinity;
  for (const float* p = partial; p != end; p += problem.shard_stride) max = std::max(max, p[head_dim]);
  alignas(64) float values[kMaxHeadDim];
  std::fill_n(values, round_up_to_vec(head_dim), 0.0f);
  float sum = 0;
  for (const float* p = partial; p != end; p += problem.shard_stride) {
    if (p[head_dim] == kNegativeInfinity) continue;
    const float weight = exp(broadcast(p[head_dim] - max))[0];
    sum += weight;
    for_each_vec(head_dim, [=, to = values](int64_t i, auto lanes) {
      store(to + i, load(to + i) + load(p + i, lanes) * weight);
    });
  }
  const float divisor = sum == 0 ? 1.0f : sum;  // no shard saw a key: zeros
  for_each_vec(head_dim, [=, from = values](int64_t i, auto lanes) { store(out + i, load(from + i) / divisor, lanes); });
}

}  // namespace
}  // namespace headway

HEADWAY_API int headway_merge_partials(const headway::MergeProblem* problem) {
  using namespace headway;
  const int64_t num_heads = problem->num_heads, floats_each = problem->num_shards * problem->head_dim;
  with_dtype(problem->out_dtype, [=](auto type) {
    parallel_for(problem->num_tokens * num_heads, floats_each, problem->num_threads, [=](int64_t i) {
      const int64_t token = i / num_heads, head = i % num_heads;
      merge_row(*problem, problem->partials + token * problem->token_stride + head * problem->head_stride,
                static_cast<decltype(type)*>(problem->out) + token * problem->out_token_stride +
                    head * problem->out_head_stride);
    });
  });
  return 0;
}
