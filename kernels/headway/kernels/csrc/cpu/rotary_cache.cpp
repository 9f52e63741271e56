// What happens to queries, keys and values between their projection and the attention: per-head norm, rotation,
// and the write into the paged cache.
#include "abi.h"
#include "rms.h"
#include "team.h"

namespace headway {

struct RotaryProblem {
  int64_t num_threads, activation_dtype, cache_dtype;
  void* q;
  int64_t q_stride;  // elements from one token to the next
  void* k;
  int64_t k_stride;
  const void* v;
  int64_t v_stride;
  int64_t num_tokens, num_heads, num_kv_heads, head_dim;
  void* k_cache;
  int64_t k_block_stride;  // elements from one block to the next
  void* v_cache;
  int64_t v_block_stride;
  int64_t num_blocks, block_size;
  Indices slots, positions;
  const float* cos_sin;  // [num_positions, rotary_dim], cosines first; null: no rotation
  int64_t num_positions, rotary_dim;
  const void *q_norm, *k_norm;  // [head_dim]; null: no norm
  double eps;
};

namespace {

constexpr int64_t kMaxHeadDim = 512;  // as in operands.py
constexpr int64_t kNotHere = -1;      // the slot of a token whose key and value another cache holds

// 0, or the code of the operand that holds impossible values: 1 slot_mapping, 2 positions.
int check(const RotaryProblem& problem) {
  constexpr int kSlotMapping = 1, kPositions = 2;
  for (int64_t t = 0; t < problem.num_tokens; ++t) {
    const int64_t slot = problem.slots[t];
    if (slot < kNotHere || slot >= problem.num_blocks * problem.block_size) return kSlotMapping;
    if (!problem.cos_sin) continue;
    const int64_t position = problem.positions[t];
    if (position < 0 || position >= problem.num_positions) return kPositions;
  }
  return 0;
}

// (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin), for the two halves of the leading rotary_dim elements
inline void rotate(float* head, const float* cos_sin, int64_t half) {
  for_each_vec(half, [=](int64_t i, auto lanes) {
    const Vec cos = load(cos_sin + i, lanes), sin = load(cos_sin + half + i, lanes);
    const Vec first = load(head + i, lanes), second = load(head + half + i, lanes);
    store(head + i, first * cos - second * sin, lanes);
    store(head + half + i, second * cos + first * sin, lanes);
  });
}

// In place on one head; `cos_sin` is the row of the token's position.
template <class T>
void transform_head(const RotaryProblem& problem, const float* cos_sin, const void* norm, T* head) {
  alignas(64) float buffer[kMaxHeadDim];
  copy_row(head, buffer, problem.head_dim);
  if (norm)
    scale_row(buffer, inverse_rms(buffer, problem.head_dim, static_cast<float>(problem.eps)), static_cast<const T*>(norm), buffer,
              problem.head_dim);
  if (cos_sin) rotate(buffer, cos_sin, problem.rotary_dim / 2);
  copy_row(buffer, head, problem.head_dim);
}

template <class T, class Cache>
void run_token(const RotaryProblem& problem, int64_t t) {
  const int64_t head_dim = problem.head_dim;
  const float* cos_sin = problem.cos_sin ? problem.cos_sin + problem.positions[t] * problem.rotary_dim : nullptr;
  T* q = static_cast<T*>(problem.q) + t * problem.q_stride;
  T* k = static_cast<T*>(problem.k) + t * problem.k_stride;
  const T* v = static_cast<const T*>(problem.v) + t * problem.v_stride;
  if (cos_sin || problem.q_norm)
    for (int64_t h = 0; h < problem.num_heads; ++h) transform_head(problem, cos_sin, problem.q_norm, q + h * head_dim);
  if (cos_sin || problem.k_norm)
    for (int64_t h = 0; h < problem.num_kv_heads; ++h)
      transform_head(problem, cos_sin, problem.k_norm, k + h * head_dim);

  if (problem.slots[t] == kNotHere) return;
  const int64_t block = problem.slots[t] / problem.block_size, slot = problem.slots[t] % problem.block_size;
  Cache* k_to = static_cast<Cache*>(problem.k_cache) + block * problem.k_block_stride + slot;
  Cache* v_to = static_cast<Cache*>(problem.v_cache) + block * problem.v_block_stride + slot * head_dim;
  for (int64_t h = 0; h < problem.num_kv_heads; ++h) {
    scatter_row(k + h * head_dim, k_to + h * problem.block_size * head_dim, problem.block_size, head_dim);
    copy_row(v + h * head_dim, v_to + h * problem.block_size * head_dim, head_dim);
  }
}

}  // namespace
}  // namespace headway

// Returns 0, or the code of `check`; then nothing was written.
HEADWAY_API int headway_rotate_and_cache(const headway::RotaryProblem* problem) {
  using namespace headway;
  if (const int fault = check(*problem)) return fault;
  const int64_t floats_each = (problem->num_heads + 4 * problem->num_kv_heads) * problem->head_dim;
  with_dtype(problem->activation_dtype, [=](auto activation) {
    with_dtype(problem->cache_dtype, [=](auto cache) {
      parallel_for(problem->num_tokens, floats_each, problem->num_threads,
                   [=](int64_t t) { run_token<decltype(activation), decltype(cache)>(*problem, t); });
    });
  });
  return 0;
}
