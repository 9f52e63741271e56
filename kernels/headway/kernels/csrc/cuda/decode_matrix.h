// Decode attention on the tensor cores: keys are the rows of a matrix, and the query heads that share them its columns.
#pragma once

#include <type_traits>

#include "decode_stages.h"
#include "warp_results.h"

namespace headway {

// Eight heads are a tile, the narrow side of a product; a CTA takes kTiles of one KV head, and reads its keys once for
// all of them. Each warp goes through keys of its own and meets the others only at the end.
template <class Cache, int kHeadDim, int kTiles>
struct MatrixDecode {
  static constexpr bool kIsFp8 = sizeof(Cache) == 1;
  using Number = std::conditional_t<kIsFp8, half, Cache>;  // what is multiplied: fp16 has all numbers of e4m3
  using Stage = headway::Stage<Cache, kHeadDim>;
  static constexpr int kHeads = 8 * kTiles;
  static constexpr int kKeys = Stage::kKeys;
  static constexpr int kSteps = kHeadDim / 16;   // dimensions of a product
  static constexpr int kMostBytes = 110 * 1024;  // of stages, so that an SM of 228 KiB holds two CTAs
  static constexpr int kFitting = kMostBytes / static_cast<int>(kWarps * sizeof(Stage));
  static constexpr int kStages = kFitting < 2 ? 2 : kFitting > 4 ? 4 : kFitting;

  union Shared {
    Stage stages[kWarps][kStages];
    WarpResults<kHeadDim, kHeads> results;
  };
  static_assert(sizeof(Shared) <= 163 * 1024, "more than a CTA of sm_80 gets");
  static constexpr int kFittingCtas = 228 * 1024 / static_cast<int>(sizeof(Shared) + 1024);  // an SM of sm_90 or sm_100
  static constexpr int kCtasPerSm = kFittingCtas < 4 ? kFittingCtas : 4;  // that registers are left for

  // Below any score, and such that a difference from it is a number.
  static constexpr float kNoScore = -1e38f;

  const DecodeProblem& problem;
  const ScoreOptions& options;
  const WorkItem& item;
  const HeadTile& heads;
  Shared& shared;
  const int warp, lane;
  int first_key;  // of the warp's in the stage that is attended to
  StageCopies<Cache, kHeadDim, kStages> copies;
  uint32_t queries[kTiles][kSteps][2];
  float factors[kTiles][2];  // that undo what queries were multiplied by
  // Of heads 2 (lane % 4) and the next of each tile, as all below; sums and values are of some of the warp's keys.
  float max[kTiles][2], sum[kTiles][2];
  float values[kTiles][kSteps][4];

  __device__ MatrixDecode(const DecodeProblem& problem, const ScoreOptions& options, const WorkItem& item,
                          const HeadTile& heads)
      : problem(problem),
        options(options),
        item(item),
        heads(heads),
        shared(*dynamic_shared<Shared>()),
        warp(__shfl_sync(kAllLanes, warp_index(), 0)),  // the compiler sees that it is the same in all lanes
        lane(lane_index()),
        first_key(item.first_key + warp * kKeys),
        copies(problem, options, item, heads.kv_head, shared.stages[warp], first_key) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        max[tile][i] = kNoScore;
        sum[tile][i] = 0;
        factors[tile][i] = 1;
      }
#pragma unroll
      for (auto& step : values[tile])
#pragma unroll
        for (float& value : step) value = 0;
    }
  }

  // Head lane / 4 of each tile, in the order in which `score` finds a key's dimensions; zeros for heads and dimensions
  // that there are not.
  __device__ __forceinline__ void load_queries() {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int head = tile * 8 + lane / 4;
      const auto* from = static_cast<const uint16_t*>(problem.q) + item.row * problem.q_row_stride +
                         (heads.first + head) * options.head_dim;
#pragma unroll
      for (int i = 0; i < 2 * kSteps; ++i) {
        const int dim = i / 2 * 16 + (kIsFp8 ? lane % 4 * 4 + i % 2 * 2 : lane % 4 * 2 + i % 2 * 8);
        const bool is_there = head < heads.count && dim < options.head_dim;
        queries[tile][i / 2][i % 2] = is_there ? *reinterpret_cast<const uint32_t*>(from + dim) : 0;
      }
      if constexpr (kIsFp8) narrow_queries(tile);
    }
  }

  __device__ __forceinline__ void unpack_query(uint32_t pair, float& first, float& second) const {
    if (problem.query_dtype == kFloat16)
      unpacked_pair<half>(pair, first, second);
    else
      unpacked_pair<bfloat16>(pair, first, second);
  }

  // From either type to fp16, whose exponents reach less far than those of bfloat16: each head is multiplied by the
  // power of 2 that brings its largest number to between 2^14 and 2^15. What then lies below fp16's smallest normal
  // number, 2^-14, is less than 2^-28 of the largest, and rounded by less than 2^-39 of it.
  __device__ __forceinline__ void narrow_queries(int tile) {
    float largest = 0, first, second;
#pragma unroll
    for (int i = 0; i < 2 * kSteps; ++i) {
      unpack_query(queries[tile][i / 2][i % 2], first, second);
      largest = fmaxf(largest, fmaxf(fabsf(first), fabsf(second)));
    }
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
    const uint32_t bits = __float_as_uint(largest) >> 23, exponent = bits < 15 ? 15 : bits;  // of 2, plus 127
    const float factor = __uint_as_float((268 - exponent) << 23), undone = __uint_as_float((exponent - 14) << 23);
#pragma unroll
    for (int i = 0; i < 2 * kSteps; ++i) {
      uint32_t& pair = queries[tile][i / 2][i % 2];
      unpack_query(pair, first, second);
      pair = packed_pair<half>(first * factor, second * factor);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) factors[tile][i] = __shfl_sync(kAllLanes, undone, (lane % 4 * 2 + i) * 4);
  }

  // Products of keys lane / 4 and lane / 4 + 8 (elements 0 and 1, 2 and 3) with two heads each, in two parts that are
  // summed up side by side.
  __device__ __forceinline__ void multiply(const Stage& stage, float (&parts)[kTiles][2][4]) const {
    const unsigned char* row = &stage.keys[lane % 16][lane / 16 * 16];
#pragma unroll
    for (int i = 0; i < Stage::kRowBytes / 32; ++i) {
      uint32_t numbers[4];
      load_matrices(numbers, row + i * 32);
      if constexpr (kIsFp8) {
        multiply_fp8(numbers, i, parts);
      } else {
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile)
          multiply_add<Number>(parts[tile][i % 2], numbers, queries[tile][i][0], queries[tile][i][1]);
      }
    }
  }

  // Of 32 numbers of each key a lane has numbers 4 (lane % 4) and the next three, and 16 behind them the same; a
  // product takes them as numbers 2 (lane % 4) and the next, and 8 behind them.
  __device__ __forceinline__ void multiply_fp8(const uint32_t (&numbers)[4], int i,
                                               float (&parts)[kTiles][2][4]) const {
#pragma unroll
    for (int half_row = 0; half_row < 2; ++half_row) {
      uint32_t low[2], high[2];
      widened<Number>(numbers[2 * half_row], low);
      widened<Number>(numbers[2 * half_row + 1], high);
      const uint32_t keys[4] = {low[0], high[0], low[1], high[1]};
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const auto& query = queries[tile][2 * i + half_row];
        multiply_add<Number>(parts[tile][half_row], keys, query[0], query[1]);
      }
    }
  }

  // The weights' exponents of 2.
  __device__ __forceinline__ void score(const Stage& stage, float (&exponents)[kTiles][4]) const {
    float parts[kTiles][2][4] = {};
    multiply(stage, parts);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int i = 0; i < 4; ++i) exponents[tile][i] = (parts[tile][0][i] + parts[tile][1][i]) * factors[tile][i % 2];
    if (options.is_plain) {
#pragma unroll
      for (auto& tile : exponents)
#pragma unroll
        for (float& exponent : tile) exponent *= options.plain_scale;
    } else {
      add_biases(exponents);
    }
#pragma unroll
    for (auto& tile : exponents)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (first_key + lane / 4 + i / 2 * 8 >= item.end_key) tile[i] = negative_infinity();
  }

  __device__ __forceinline__ void add_biases(float (&exponents)[kTiles][4]) const {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int head = tile * 8 + lane % 4 * 2 + i % 2, key = first_key + lane / 4 + i / 2 * 8;
        if (head < heads.count)
          exponents[tile][i] = options.exponent(exponents[tile][i], heads.first + head, key - item.position);
      }
  }

  // From exponents to weights, in `packed` as the second factor of a product; what was summed up so far is brought to
  // the same maximum.
  __device__ __forceinline__ void weigh(int tile, float (&exponents)[4], uint32_t (&packed)[2]) {
    float new_max[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) new_max[i] = fmaxf(max[tile][i], fmaxf(exponents[i], exponents[i + 2]));
#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2)
#pragma unroll
      for (int i = 0; i < 2; ++i) new_max[i] = fmaxf(new_max[i], __shfl_xor_sync(kAllLanes, new_max[i], lanes));
#pragma unroll
    for (int i = 0; i < 4; ++i) exponents[i] = fast_exp2(exponents[i] - new_max[i % 2]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float factor = fast_exp2(max[tile][i] - new_max[i]);
      max[tile][i] = new_max[i];
      sum[tile][i] = sum[tile][i] * factor + (exponents[i] + exponents[i + 2]);
#pragma unroll
      for (auto& step : values[tile]) {
        step[i] *= factor;
        step[i + 2] *= factor;
      }
      packed[i] = transposed(packed_pair<Number>(exponents[2 * i], exponents[2 * i + 1]));
    }
  }

  // Elements 0 and 1 of a step are of its dimension lane / 4, elements 2 and 3 of dimension lane / 4 + 8; with fp8 of
  // dimensions 2 (lane / 4) and the next, whose numbers are loaded as one.
  __device__ __forceinline__ void attend(const Stage& stage) {
    float exponents[kTiles][4];
    score(stage, exponents);
    uint32_t weights[kTiles][2];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) weigh(tile, exponents[tile], weights[tile]);
    const int key = lane % 8 + (kIsFp8 ? lane / 8 % 2 : lane / 16) * 8, piece = kIsFp8 ? lane / 16 : lane / 8 % 2;
    const unsigned char* row = &stage.values[key][piece * 16];
#pragma unroll
    for (int i = 0; i < Stage::kRowBytes / 32; ++i) {
      uint32_t numbers[4];
      load_matrices_transposed(numbers, row + i * 32);
      if constexpr (kIsFp8) {
        add_fp8(numbers, i, weights);
      } else {
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile)
          multiply_add<Number>(values[tile][i], numbers, weights[tile][0], weights[tile][1]);
      }
    }
  }

  __device__ __forceinline__ void add_fp8(const uint32_t (&numbers)[4], int i, const uint32_t (&weights)[kTiles][2]) {
#pragma unroll
    for (int half_row = 0; half_row < 2; ++half_row) {
      uint32_t first[2], second[2];  // eight keys each
      widened<Number>(middle_swapped(numbers[2 * half_row]), first);
      widened<Number>(middle_swapped(numbers[2 * half_row + 1]), second);
      const uint32_t columns[4] = {first[0], first[1], second[0], second[1]};
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile)
        multiply_add<Number>(values[tile][2 * i + half_row], columns, weights[tile][0], weights[tile][1]);
    }
  }

  __device__ __forceinline__ void keep_results() {
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
      const int tile = i / 2, head = tile * 8 + lane % 4 * 2 + i % 2;
      float& total = sum[tile][i % 2];
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) total += __shfl_xor_sync(kAllLanes, total, lanes);
      if (lane < 4) {
        shared.results.maxima[warp][head] = max[tile][i % 2];
        shared.results.sums[warp][head] = total;
      }
#pragma unroll
      for (int j = 0; j < 2 * kSteps; ++j) {
        const int dim = j / 2 * 16 + (kIsFp8 ? lane / 4 * 2 + j % 2 : lane / 4 + j % 2 * 8);
        shared.results.values[warp][head][dim] = values[tile][j / 2][i % 2 + j % 2 * 2];
      }
    }
  }

  __device__ __forceinline__ void run() {
    for (int stage = 0; stage < kStages - 1; ++stage) copies.start_next();
    load_queries();
    const Stage* const stages = shared.stages[warp];
    for (int stage = 0; first_key < item.end_key; first_key += kWarps * kKeys) {
      wait_copies<kStages - 2>();
      __syncwarp();  // what the other lanes copied is here, and they have done with the stage before
      copies.start_next();
      attend(stages[stage]);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    __syncthreads();  // the results take the place of the stages
    keep_results();
    __syncthreads();
    shared.results.store(problem, item, heads, options.value_scale);
  }
};

// One CTA for each KV head, kTiles * 8 of the query heads that share it, and slot.
template <class Cache, int kHeadDim, int kTiles>
__global__ void __launch_bounds__(kThreads, (MatrixDecode<Cache, kHeadDim, kTiles>::kCtasPerSm))
    decode_matrix(const DecodeProblem problem, const ScoreOptions options, const int tiles_per_group) {
  let_next_start();
  const HeadTile heads(problem, 8 * kTiles, tiles_per_group);
  for_each_item(problem, [&](const WorkItem& item) {
    MatrixDecode<Cache, kHeadDim, kTiles>(problem, options, item, heads).run();
  });
}

}  // namespace headway
