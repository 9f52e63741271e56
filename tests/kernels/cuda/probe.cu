// Kernels that use one thing of the emulation each, rightly or wrongly.
#include "device.h"

namespace headway {

struct Probe {
  const void* in;
  void* out;
};

__global__ void sums_over_lanes(const Probe probe) {
  float sum = static_cast<const float*>(probe.in)[threadIdx.x];
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(kAllLanes, sum, lanes);
  static_cast<float*>(probe.out)[threadIdx.x] = sum;
}

// Of numbers of eight bytes, up to and with each lane's own; what a lane got from itself is not added.
__global__ void sums_up_to_each_lane(const Probe probe) {
  int64_t sum = static_cast<const int64_t*>(probe.in)[threadIdx.x];
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const int64_t before = __shfl_up_sync(kAllLanes, sum, lanes);
    if (lane_index() >= lanes) sum += before;
  }
  static_cast<int64_t*>(probe.out)[threadIdx.x] = sum;
}

__global__ void reverses_a_block(const Probe probe) {
  int* shared = dynamic_shared<int>();
  shared[threadIdx.x] = static_cast<const int*>(probe.in)[threadIdx.x];
  __syncthreads();
  static_cast<int*>(probe.out)[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

__global__ void counts_votes(const Probe probe) {
  const uint32_t ballot = __ballot_sync(kAllLanes, static_cast<const int*>(probe.in)[threadIdx.x] != 0);
  int* counts = static_cast<int*>(probe.out);
  if (lane_index() == 0) atomicAdd(counts, __builtin_popcount(ballot));
  atomicMax(counts + 1, static_cast<int>(threadIdx.x));
}

// in: [16, 16] then [8, 16] (its transpose is multiplied), out: [16, 8] in float
template <class T>
__global__ void multiplies_matrices(const Probe probe) {
  constexpr int kWidth = 24;  // of a row of 16 in shared memory: eight rows lie in different banks
  T* shared = dynamic_shared<T>();
  for (int i = lane_index(); i < 24 * 16; i += 32)
    shared[i / 16 * kWidth + i % 16] = static_cast<const T*>(probe.in)[i];
  __syncwarp();
  const int lane = lane_index();
  uint32_t a[4], b[4];
  load_matrices(a, shared + lane % 16 * kWidth + lane / 16 * 8);
  load_matrices(b, shared + (16 + lane % 8) * kWidth + lane / 8 % 2 * 8);
  float c[4] = {};
  multiply_add<T>(c, a, b[0], b[1]);
  for (int i = 0; i < 4; ++i)
    static_cast<float*>(probe.out)[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = c[i];
}

__global__ void transposes_matrices(const Probe probe) {
  uint16_t* shared = dynamic_shared<uint16_t>();
  for (int i = lane_index(); i < 256; i += 32) shared[i] = static_cast<const uint16_t*>(probe.in)[i];
  __syncwarp();
  const int lane = lane_index();
  uint32_t registers[4];
  load_matrices_transposed(registers, shared + lane * 8);
  for (int m = 0; m < 4; ++m)
    static_cast<uint32_t*>(probe.out)[m * 32 + lane] = registers[m];
}

__global__ void loads_from_the_same_banks(const Probe) {
  uint32_t registers[4];
  load_matrices(registers, dynamic_shared<uint16_t>() + lane_index() % 8 * 64);
}

__global__ void transposes_a_matrix(const Probe probe) {
  static_cast<uint32_t*>(probe.out)[lane_index()] = transposed(static_cast<const uint32_t*>(probe.in)[lane_index()]);
}

__global__ void swaps_middles(const Probe probe) {
  static_cast<uint32_t*>(probe.out)[lane_index()] = middle_swapped(static_cast<const uint32_t*>(probe.in)[lane_index()]);
}

__global__ void copies_in_time(const Probe probe) {
  auto* shared = dynamic_shared<float>() + 4 * threadIdx.x;
  copy_async<16>(shared, static_cast<const float*>(probe.in) + 4 * threadIdx.x, threadIdx.x != 1);
  commit_copies();
  static_cast<float*>(probe.out)[4 * threadIdx.x] = shared[0];
  wait_copies<0>();
  for (int i = 1; i < 4; ++i) static_cast<float*>(probe.out)[4 * threadIdx.x + i] = shared[i];
}

// The first number of `in` chooses the thread that stays away.
__global__ void leaves_a_thread_behind(const Probe probe) {
  if (static_cast<int>(threadIdx.x) != *static_cast<const int*>(probe.in)) __syncthreads();
}

__global__ void meets_at_two_barriers(const Probe) {
  if (threadIdx.x % 2)
    __syncthreads();
  else
    __syncthreads();
}

__global__ void shuffles_without_a_lane(const Probe probe) {
  if (threadIdx.x != 31) static_cast<float*>(probe.out)[threadIdx.x] = __shfl_xor_sync(kAllLanes, 1.0f, 1);
}

__global__ void shuffles_from_outside_the_mask(const Probe probe) {
  if (threadIdx.x < 16) static_cast<float*>(probe.out)[threadIdx.x] = __shfl_xor_sync(0xffffu, 1.0f, 16);
}

__global__ void votes_with_a_foreign_mask(const Probe probe) {
  static_cast<uint32_t*>(probe.out)[threadIdx.x] = __ballot_sync(0xffffu, true);
}

__global__ void writes_behind_shared_memory(const Probe) { dynamic_shared<char>()[2048] = 1; }
__global__ void writes_before_shared_memory(const Probe) { dynamic_shared<char>()[-1] = 1; }

__global__ void copies_out_of_shared_memory(const Probe probe) {
  copy_async<16>(dynamic_shared<char>() + 2040, probe.in, true);
}
__global__ void copies_to_a_crooked_place(const Probe probe) {
  copy_async<16>(dynamic_shared<char>() + 8, probe.in, true);
}

__global__ void loads_from_a_crooked_place(const Probe probe) {
  float numbers[8];
  load8<half>(static_cast<const char*>(probe.in) + 8, numbers);
  static_cast<float*>(probe.out)[0] = numbers[0];
}
__global__ void stores_to_a_crooked_place(const Probe probe) {
  store8<fp8>(static_cast<char*>(probe.out) + 4, {});
}

template <class T>
__global__ void rounds(const Probe probe) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  static_cast<T*>(probe.out)[i] = rounded<T>(static_cast<const float*>(probe.in)[i]);
}

template <class T>
__global__ void widens(const Probe probe) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  static_cast<float*>(probe.out)[i] = to_float(static_cast<const T*>(probe.in)[i]);
}

}  // namespace headway

#define PROBE(name, kernel)                                                              \
  HEADWAY_API int name(const void* in, void* out, unsigned blocks, unsigned threads) { \
    return headway::launch(headway::kernel, dim3{blocks, 1, 1}, dim3{threads, 1, 1}, 2048, 0, headway::Probe{in, out}); \
  }

PROBE(sums_over_lanes, sums_over_lanes)
PROBE(sums_up_to_each_lane, sums_up_to_each_lane)
PROBE(reverses_a_block, reverses_a_block)
PROBE(counts_votes, counts_votes)
PROBE(multiplies_float16, multiplies_matrices<headway::half>)
PROBE(multiplies_bfloat16, multiplies_matrices<headway::bfloat16>)
PROBE(transposes_matrices, transposes_matrices)
PROBE(transposes_a_matrix, transposes_a_matrix)
PROBE(swaps_middles, swaps_middles)
PROBE(copies_in_time, copies_in_time)
PROBE(leaves_a_thread_behind, leaves_a_thread_behind)
PROBE(meets_at_two_barriers, meets_at_two_barriers)
PROBE(shuffles_without_a_lane, shuffles_without_a_lane)
PROBE(shuffles_from_outside_the_mask, shuffles_from_outside_the_mask)
PROBE(votes_with_a_foreign_mask, votes_with_a_foreign_mask)
PROBE(writes_behind_shared_memory, writes_behind_shared_memory)
PROBE(writes_before_shared_memory, writes_before_shared_memory)
PROBE(copies_out_of_shared_memory, copies_out_of_shared_memory)
PROBE(copies_to_a_crooked_place, copies_to_a_crooked_place)
PROBE(loads_from_the_same_banks, loads_from_the_same_banks)
PROBE(loads_from_a_crooked_place, loads_from_a_crooked_place)
PROBE(stores_to_a_crooked_place, stores_to_a_crooked_place)
PROBE(rounds_float16, rounds<headway::half>)
PROBE(rounds_bfloat16, rounds<headway::bfloat16>)
PROBE(rounds_float8_e4m3fn, rounds<headway::fp8>)
PROBE(widens_float16, widens<headway::half>)
PROBE(widens_bfloat16, widens<headway::bfloat16>)
PROBE(widens_float8_e4m3fn, widens<headway::fp8>)
