// What happens to queries, keys and values between their projection and the attention: per-head norm, rotation, and
// the write into the paged cache, in one launch. Without a cache queries and keys are rotated only.
#include "device.h"

namespace headway {

constexpr int kMaxHeadDim = 256;  // as in cuda/operands.py
constexpr int kMaxRotaryWarps = 12, kRotaryCtas = 3;  // of a CTA, and those that an SM holds of the largest size

// int32 or int64 numbers behind one pointer, all of which fit into 32 bits: of the wide ones the lower half is read.
struct Indices {
  const int32_t* data;
  int64_t is_int64;

  __device__ __forceinline__ int operator[](int i) const { return data[is_int64 ? 2 * i : i]; }
};

// Filled in by cuda/kernels.py, field by field in this order, eight bytes each. Strides count elements.
struct RotaryProblem {
  int64_t activation_dtype, cache_dtype;
  void* q;
  int64_t q_token_stride;
  void* k;
  int64_t k_token_stride;
  const void* v;
  int64_t v_token_stride;
  int64_t num_tokens, num_heads, num_kv_heads, head_dim;
  void* k_cache;  // null: nothing is written, and v is not read
  int64_t k_block_stride;
  void* v_cache;
  int64_t v_block_stride;
  int64_t block_size;
  Indices slots;  // -1: another cache holds the token
  Indices positions;
  const float* cos_sin;  // [positions, rotary_dim], cosines first; null: no rotation
  int64_t rotary_dim;
  const void *q_norm, *k_norm;  // [head_dim]; null: no norm
  double eps;
  double key_scale, value_scale;  // what cached numbers will be multiplied by
  int64_t stream;
};

// Finds a slot's block, for slots below 2^31, with a product and a shift.
struct BlockSize {
  int tokens;
  uint32_t multiplier;
  int shift = 31;

  explicit BlockSize(int64_t size) : tokens(static_cast<int>(size)) {
    while (int64_t{1} << (shift - 31) < size) ++shift;
    multiplier = static_cast<uint32_t>((int64_t{1} << shift) / size + 1);
  }

  __device__ __forceinline__ int block_of(int slot) const {
    return static_cast<int>(static_cast<uint64_t>(slot) * multiplier >> shift);
  }
};

// The rows of a token that are heads of q, of k or of v.
struct Heads {
  void* data;
  int64_t token_stride;
  const void* norm;  // null: none
  int64_t turns;
  void* cache;  // null: none
  int64_t block_stride;
  float factor;  // of what is cached
  int first_row;
};

// What the host makes of a problem, once for all rows. A head is cut into chunks, and a lane has pairs of them: two that
// turn against each other, or two that lie side by side where nothing turns.
struct RotaryLaunch {
  Heads heads[3];
  int num_rows, head_dim;
  int lane_bits;  // 2^lane_bits lanes take a head
  int num_pairs, num_turning, rotary_dim;
  const float* cos_sin;
  Indices slots, positions;
  BlockSize block_size;
  float inverse_head_dim, eps;
  bool has_norm, has_cache;

  RotaryLaunch(const RotaryProblem& problem, int chunk)
      : head_dim(static_cast<int>(problem.head_dim)),
        lane_bits(0),
        num_pairs((head_dim + 2 * chunk - 1) / (2 * chunk)),
        rotary_dim(static_cast<int>(problem.rotary_dim)),
        cos_sin(problem.cos_sin),
        slots(problem.slots),
        positions(problem.positions),
        block_size(problem.k_cache ? problem.block_size : 1),
        inverse_head_dim(1.0f / static_cast<float>(problem.head_dim)),
        eps(static_cast<float>(problem.eps)),
        has_norm(problem.q_norm || problem.k_norm),
        has_cache(problem.k_cache) {
    const auto num_heads = static_cast<int>(problem.num_heads), num_kv_heads = static_cast<int>(problem.num_kv_heads);
    const int64_t turns = cos_sin != nullptr;
    const float key_factor = static_cast<float>(1 / problem.key_scale);
    const float value_factor = static_cast<float>(1 / problem.value_scale);
    heads[0] = {problem.q, problem.q_token_stride, problem.q_norm, turns, nullptr, 0, 1.0f, 0};
    heads[1] = {problem.k,       problem.k_token_stride, problem.k_norm, turns,
                problem.k_cache, problem.k_block_stride, key_factor,     num_heads};
    heads[2] = {const_cast<void*>(problem.v), problem.v_token_stride, nullptr,      0,
                problem.v_cache,              problem.v_block_stride, value_factor, num_heads + num_kv_heads};
    num_rows = num_heads + (has_cache ? 2 : 1) * num_kv_heads;
    num_turning = turns ? rotary_dim / (2 * chunk) : 0;
    while (1 << lane_bits < num_pairs && lane_bits < 5) ++lane_bits;
  }

  // Enough warps for all rows at once, or for equal rounds of them.
  int num_warps() const {
    const int needed = ((num_rows << lane_bits) + 31) / 32;
    const int rounds = (needed + kMaxRotaryWarps - 1) / kMaxRotaryWarps;
    return (needed + rounds - 1) / rounds;
  }

  __device__ __forceinline__ const Heads& of_row(int row) const {
    return heads[(row >= heads[1].first_row) + (row >= heads[2].first_row)];
  }
};

template <class T, int kChunk>
__device__ __forceinline__ void load_chunk(const T* from, float (&to)[kChunk]) {
  if constexpr (kChunk == 8)
    load8<T>(from, to);
  else
    to[0] = to_float(from[0]);
}

template <class T, int kChunk>
__device__ __forceinline__ void store_chunk(T* to, const float (&from)[kChunk]) {
  if constexpr (kChunk == 8)
    store8<T>(to, from);
  else
    to[0] = rounded<T>(from[0]);
}

// What one lane has of a head.
template <int kChunk>
struct HeadPart {
  static constexpr int kPairs = kChunk == 8 ? 1 : kMaxHeadDim / 2 / 32;

  const RotaryLaunch& launch;
  int pairs[kPairs];
  int places[kPairs][2];  // of the chunks in the head; behind its end where there is none
  float numbers[kPairs][2][kChunk] = {};

  __device__ __forceinline__ HeadPart(const RotaryLaunch& launch, int lane) : launch(launch) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int pair = pairs[i] = lane + (i << launch.lane_bits);
      const bool turns = pair < launch.num_turning;
#pragma unroll
      for (int side = 0; side < 2; ++side)
        places[i][side] = (turns ? pair + side * launch.num_turning : 2 * pair + side) * kChunk;
    }
  }

  // Calls `act` with each chunk and its place.
  template <class Act>
  __device__ __forceinline__ void for_each_chunk(const Act& act) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i)
#pragma unroll
      for (int side = 0; side < 2; ++side)
        if (places[i][side] < launch.head_dim) act(numbers[i][side], places[i][side]);
  }

  template <class T>
  __device__ __forceinline__ void load(const T* head) {
    for_each_chunk([&](float(&chunk)[kChunk], int at) { load_chunk<T, kChunk>(head + at, chunk); });
  }

  template <class T>
  __device__ __forceinline__ void store(T* head, float factor) {
    for_each_chunk([&](const float(&chunk)[kChunk], int at) {
      float scaled[kChunk];
#pragma unroll
      for (int k = 0; k < kChunk; ++k) scaled[k] = chunk[k] * factor;
      store_chunk<T, kChunk>(head + at, scaled);
    });
  }

  // Called by all lanes of a warp, with the weight of their head or null.
  template <class T>
  __device__ __forceinline__ void normalise(const T* weight) {
    float sum = 0;
    for_each_chunk([&](const float(&chunk)[kChunk], int) {
#pragma unroll
      for (int k = 0; k < kChunk; ++k) sum += chunk[k] * chunk[k];
    });
    for (int lanes = 1; lanes < 1 << launch.lane_bits; lanes *= 2) sum += __shfl_xor_sync(kAllLanes, sum, lanes);
    if (!weight) return;
    const float inverse = rsqrtf(sum * launch.inverse_head_dim + launch.eps);
    for_each_chunk([&](float(&chunk)[kChunk], int at) {
      float weights[kChunk];
      load_chunk<T, kChunk>(weight + at, weights);
#pragma unroll
      for (int k = 0; k < kChunk; ++k) chunk[k] *= inverse * weights[k];
    });
  }

  // (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin)
  __device__ __forceinline__ void rotate(const float* cos_sin) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int pair = pairs[i];
      if (pair >= launch.num_turning) continue;
      float cosines[kChunk], sines[kChunk];
      load_chunk<float, kChunk>(cos_sin + pair * kChunk, cosines);
      load_chunk<float, kChunk>(cos_sin + (pair + launch.num_turning) * kChunk, sines);
#pragma unroll
      for (int k = 0; k < kChunk; ++k) {
        const float first = numbers[i][0][k], second = numbers[i][1][k];
        numbers[i][0][k] = first * cosines[k] - second * sines[k];
        numbers[i][1][k] = second * cosines[k] + first * sines[k];
      }
    }
  }
};

// One CTA for each token. Several lanes take a head, and each reads and writes what it has of it, so that nothing of
// it goes through shared memory; the lanes of a warp that have the same numbers of other heads share cosines and sines.
template <class T, class Cache, int kChunk>
__global__ void __launch_bounds__(32 * kMaxRotaryWarps, kRotaryCtas) rotate_and_cache(const RotaryLaunch launch) {
  const int token = static_cast<int>(blockIdx.x), lane_bits = launch.lane_bits;
  HeadPart<kChunk> part(launch, lane_index() & ((1 << lane_bits) - 1));
  // All lanes of a warp stay together, whether they have a row or not: they sum up squares.
  const int step = static_cast<int>(blockDim.x) >> lane_bits;
  for (int first = 32 * warp_index() >> lane_bits; first < launch.num_rows; first += step) {
    const int row = first + (lane_index() >> lane_bits);
    const Heads& heads = launch.of_row(row);
    const int head = row - heads.first_row;
    const bool is_active = row < launch.num_rows;
    T* numbers = static_cast<T*>(heads.data) + token * heads.token_stride + head * launch.head_dim;
    if (is_active) part.load(numbers);
    // Read behind the row, whose way is longer, and not ahead of the loop, where it would be waited for.
    const int position = heads.turns ? launch.positions[token] : 0, slot = heads.cache ? launch.slots[token] : -1;
    if (launch.has_norm) part.normalise(is_active ? static_cast<const T*>(heads.norm) : nullptr);
    if (!is_active) continue;
    if (heads.turns) part.rotate(launch.cos_sin + int64_t{position} * launch.rotary_dim);
    if (heads.turns || heads.norm) part.store(numbers, 1.0f);
    if (slot < 0) continue;
    const int block = launch.block_size.block_of(slot), place = slot - block * launch.block_size.tokens;
    auto* cached = static_cast<Cache*>(heads.cache) + block * heads.block_stride;
    part.store(cached + (head * launch.block_size.tokens + place) * launch.head_dim, heads.factor);
  }
}

// Whether heads can be read in chunks of eight, each in one access or two.
template <class T>
bool takes_chunks(const RotaryProblem& problem) {
  uintptr_t offsets = 0;
  for (const void* data : {static_cast<const void*>(problem.q), static_cast<const void*>(problem.k), problem.v,
                           static_cast<const void*>(problem.cos_sin), problem.q_norm, problem.k_norm})
    offsets |= reinterpret_cast<uintptr_t>(data);
  for (const int64_t stride : {problem.q_token_stride, problem.k_token_stride, problem.v_token_stride})
    offsets |= static_cast<uintptr_t>(stride * static_cast<int64_t>(sizeof(T)));
  return offsets % 16 == 0 && problem.head_dim % 16 == 0 && problem.rotary_dim % 16 == 0;
}

template <class T, class Cache, int kChunk>
int launch_rotary(const RotaryProblem& problem) {
  const RotaryLaunch operands(problem, kChunk);
  const dim3 grid{static_cast<unsigned>(problem.num_tokens), 1, 1};
  const dim3 block{static_cast<unsigned>(32 * operands.num_warps()), 1, 1};
  return launch(rotate_and_cache<T, Cache, kChunk>, grid, block, 0, problem.stream, operands);
}

template <class T, class Cache>
int launch_rotary(const RotaryProblem& problem) {
  return takes_chunks<T>(problem) ? launch_rotary<T, Cache, 8>(problem) : launch_rotary<T, Cache, 1>(problem);
}

template <class T>
int launch_rotary_into(const RotaryProblem& problem) {
  switch (problem.cache_dtype) {
    case kFloat32:
      if constexpr (sizeof(T) == 4) return launch_rotary<float, float>(problem);
      return kUnsupported;
    case kFloat16: return launch_rotary<T, half>(problem);
    case kBFloat16: return launch_rotary<T, bfloat16>(problem);
    case kFp8: return launch_rotary<T, fp8>(problem);
    default: return kUnsupported;
  }
}

}  // namespace headway

HEADWAY_API int headway_rotate_and_cache(const headway::RotaryProblem* problem) {
  using namespace headway;
  if (problem->num_tokens == 0) return 0;
  switch (problem->activation_dtype) {
    case kFloat32: return launch_rotary_into<float>(*problem);
    case kFloat16: return launch_rotary_into<half>(*problem);
    case kBFloat16: return launch_rotary_into<bfloat16>(*problem);
    default: return kUnsupported;
  }
}
