// One token for each row of logits, drawn from what temperature, min-p, top-k and top-p leave of the distribution. The
// same draw for the same row, seed and position as the worker's sampler makes on the CPU, but for rounding.
#include "device.h"

namespace headway {

constexpr int kMaxSampleThreads = 1024;
constexpr int kMaxSampleWarps = kMaxSampleThreads / 32;
constexpr int kBinBits = 10;
constexpr int kWeightBits = 3 * kBinBits;  // of a float up to 1, in which the sign and the next bit are 0

// Sums of weights, in units of 2^-43: whole numbers, whose sum is the same in any order. 2^20 tokens of weight 1 fit.
using Mass = unsigned long long;
constexpr int kMassBits = 43;
constexpr float kMassOfOne = 8796093022208.0f;
constexpr uint32_t kLeastDrawn = (127 - kMassBits) << 23;  // bits of the lowest weight that has a mass

// Filled in by cuda/kernels.py, field by field in this order, eight bytes each. Strides count elements.
struct SampleProblem {
  int64_t* out;  // [rows]
  const float* logits;
  int64_t logits_stride;
  int64_t num_rows, vocab_size;
  const int64_t *seeds, *positions;  // [rows] each, from here on
  const float* temperatures;         // 0: the best token
  const int64_t* top_k;              // 0: all
  const double* top_p;               // 1: all
  const float* min_p;                // 0: all
  int64_t stream;
};

// splitmix64's output function.
__device__ __forceinline__ uint64_t mixed(uint64_t state) {
  state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9ull;
  state = (state ^ state >> 27) * 0x94D049BB133111EBull;
  return state ^ state >> 31;
}

// 2^64 times a number in [0, 1) of 52 bits: the generator's state after `position` steps, mixed twice.
__device__ __forceinline__ uint64_t uniform(int64_t seed, int64_t position) {
  const uint64_t steps = static_cast<uint64_t>(position) + 1;
  return mixed(mixed(static_cast<uint64_t>(seed)) + steps * 0x9E3779B97F4A7C15ull) & ~uint64_t{0xfff};
}

// Sums by 1,024 keys, which all threads add to. Each is two words, since there is no atomic addition of 64 bits in shared
// memory, only attempts until one succeeds: whoever makes the lower word wrap around carries. The lanes that add up 32
// sums each meet in no bank.
struct Bins {
  static constexpr int kCount = 1 << kBinBits, kWords = kCount + kCount / 32;

  uint32_t low[kWords], high[kWords];

  __device__ __forceinline__ static int word_of(int bin) { return bin + bin / 32; }

  __device__ __forceinline__ void clear(int bin) { low[word_of(bin)] = high[word_of(bin)] = 0; }

  __device__ __forceinline__ void add(uint32_t bin, Mass mass) {
    const int word = word_of(static_cast<int>(bin));
    const auto lower = static_cast<uint32_t>(mass);
    const uint32_t before = atomicAdd(&low[word], lower);
    const uint32_t upper = static_cast<uint32_t>(mass >> 32) + (before + lower < before);
    if (upper) atomicAdd(&high[word], upper);
  }

  __device__ __forceinline__ Mass operator[](int bin) const {
    return Mass{high[word_of(bin)]} << 32 | low[word_of(bin)];
  }
};

struct Best {
  float logit;
  int token;

  // A NaN is above all else, as for torch; of equals the first counts.
  __device__ __forceinline__ void meet(float other_logit, int other_token) {
    const bool is_nan = logit != logit, is_other_nan = other_logit != other_logit;
    const bool is_equal = logit == other_logit || (is_nan && is_other_nan);
    if (is_equal ? other_token < token : !is_nan && (is_other_nan || other_logit > logit)) {
      logit = other_logit;
      token = other_token;
    }
  }

  __device__ __forceinline__ void meet_lanes() {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      const float other_logit = __shfl_xor_sync(kAllLanes, logit, lanes);
      const int other_token = __shfl_xor_sync(kAllLanes, token, lanes);
      meet(other_logit, other_token);
    }
  }
};

// One row, by one CTA.
struct RowSampler {
  struct Shared {
    Bins bins;
    Mass sums[kMaxSampleWarps];
    Best best[kMaxSampleWarps];
    Mass wanted;
    int bin;
  };

  const float* logits;
  const int num_tokens, num_threads, num_warps;
  const float temperature;
  Shared& shared;
  const int warp, lane;
  Best best;
  bool is_broken;   // no logit is the best: all tokens weigh alike
  uint32_t lowest;  // bits of the lowest weight that stays: they grow with it

  __device__ RowSampler(const SampleProblem& problem, int64_t row)
      : logits(problem.logits + row * problem.logits_stride),
        num_tokens(static_cast<int>(problem.vocab_size)),
        num_threads(static_cast<int>(blockDim.x)),
        num_warps(num_threads / 32),
        temperature(problem.temperatures[row]),
        shared(*dynamic_shared<Shared>()),
        warp(warp_index()),
        lane(lane_index()),
        best{negative_infinity(), 0} {
    find_best();
    is_broken = !(fabsf(best.logit) < INFINITY);
    lowest = __float_as_uint(problem.min_p[row]);
  }

  // Calls `visit` with each `step`th token from `first` on whose logit is not below `floor`, and with that logit. Several
  // are loaded before the first is looked at: a row is read by one SM, which waits for memory otherwise.
  template <typename Visit>
  __device__ __forceinline__ void visit_tokens(int first, int end, int step, float floor, Visit visit) const {
    constexpr int kAhead = 8;
    for (int token = first; token < end; token += kAhead * step) {
      float ahead[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) ahead[i] = token + i * step < end ? logits[token + i * step] : 0.0f;
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (token + i * step < end && !(ahead[i] < floor)) visit(token + i * step, ahead[i]);
      }
    }
  }

  __device__ __forceinline__ void find_best() {
    visit_tokens(static_cast<int>(threadIdx.x), num_tokens, num_threads, negative_infinity(),
                 [&](int token, float logit) { best.meet(logit, token); });
    best.meet_lanes();
    if (lane == 0) shared.best[warp] = best;
    __syncthreads();
    best = shared.best[lane % num_warps];
    best.meet_lanes();
  }

  __device__ __forceinline__ float weight(float logit) const {
    return is_broken ? 1.0f : expf((logit - best.logit) / temperature);
  }

  __device__ __forceinline__ Mass kept_mass(float logit) const {
    const float it = weight(logit);
    return __float_as_uint(it) < lowest ? 0 : static_cast<Mass>(it * kMassOfOne);
  }

  // A logit below which weights are less than the one of these bits, by a margin that no rounding makes up for: most
  // tokens need no exponential then. Weights are 2^-43 at least, whose logarithm is -30.
  __device__ __forceinline__ float floor_of(uint32_t weight_bits) const {
    if (is_broken) return negative_infinity();
    const float margin = 1e-3f * temperature + 1e-6f * fabsf(best.logit);
    return best.logit + temperature * logf(__uint_as_float(weight_bits)) - margin;
  }

  // Where no weight is lower than what can be drawn.
  __device__ __forceinline__ uint32_t least_drawn() const { return lowest > kLeastDrawn ? lowest : kLeastDrawn; }

  __device__ __forceinline__ Mass sum_of_lanes(Mass sum) const {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(kAllLanes, sum, lanes);
    return sum;
  }

  // The sum up to and with each lane's own.
  __device__ __forceinline__ Mass running_sum(Mass sum) const {
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const Mass before = __shfl_up_sync(kAllLanes, sum, lanes);
      if (lane >= lanes) sum += before;
    }
    return sum;
  }

  // By the first warp: in which bin, from the highest down, the sum reaches what is wanted, and what of it is left. Of
  // the whole sum `share` is wanted, or the number that `shared` holds. If the sum is less, in none: -1.
  __device__ __forceinline__ void find_bin(double share) {
    constexpr int kOfLane = Bins::kCount / 32;
    const int highest = Bins::kCount - 1 - lane * kOfLane;
    Mass own = 0;
    for (int i = 0; i < kOfLane; ++i) own += shared.bins[highest - i];
    const Mass reached = running_sum(own), total = __shfl_sync(kAllLanes, reached, 31);
    Mass wanted = shared.wanted;
    if (share > 0) {
      wanted = static_cast<Mass>(ceil(share * static_cast<double>(total)));
      wanted = wanted < 1 ? 1 : wanted > total ? total : wanted;
    }
    if (lane == 0) shared.bin = -1;
    __syncwarp();
    if (reached < wanted || reached - own >= wanted) return;
    wanted -= reached - own;
    int bin = highest;
    for (; shared.bins[bin] < wanted; --bin) wanted -= shared.bins[bin];
    shared.bin = bin;
    shared.wanted = wanted;
  }

  // Raises `lowest` to the lowest weight of the smallest set of the heaviest tokens that has the share of the mass of
  // all that stay, or where `share` is 0 the number of tokens that `count` says. Instead of a sort there are
  // histograms, of which each looks into the bin that the one before has ended in. Tokens without a mass, at a low
  // temperature nearly all, are in none: nothing draws them.
  __device__ __forceinline__ void cut(double share, Mass count) {
    const uint32_t least = share > 0 ? least_drawn() : kLeastDrawn;
    uint32_t found = 0;  // the upper bits of the weight
    if (threadIdx.x == 0) shared.wanted = count;
    for (int shift = kWeightBits - kBinBits; shift >= 0; shift -= kBinBits) {
      for (int bin = static_cast<int>(threadIdx.x); bin < Bins::kCount; bin += num_threads) shared.bins.clear(bin);
      __syncthreads();
      const uint32_t first_found = found << kBinBits << shift;
      const float floor = floor_of(first_found > least ? first_found : least);
      visit_tokens(static_cast<int>(threadIdx.x), num_tokens, num_threads, floor, [&](int, float logit) {
        const float it = weight(logit);
        const uint32_t bits = __float_as_uint(it);
        if (bits < least || bits >> shift >> kBinBits != found) return;
        shared.bins.add(bits >> shift & (Bins::kCount - 1), share > 0 ? static_cast<Mass>(it * kMassOfOne) : 1);
      });
      __syncthreads();
      if (warp == 0) find_bin(shift == kWeightBits - kBinBits ? share : 0);
      __syncthreads();
      if (shared.bin < 0) return;  // there are no more tokens than are wanted
      found = found << kBinBits | static_cast<uint32_t>(shared.bin);
    }
    if (found > lowest) lowest = found;
  }

  // Inverts the cumulative distribution, in the order of the vocabulary: the warps sum up a part each, and go on with
  // the one that the draw falls into.
  __device__ __forceinline__ void draw(uint64_t uniform, int64_t* out) {
    Mass target = 0;
    const float floor = floor_of(least_drawn());
    int first = 0, end = num_tokens;
    for (int part = 0; part != 32; end = first + part < end ? first + part : end) {
      const bool is_whole = part == 0;
      part = ((end - first + num_warps - 1) / num_warps + 31) / 32 * 32;
      const int own = first + warp * part, own_end = own + part < end ? own + part : end;
      Mass sum = 0;
      visit_tokens(own + lane, own_end, 32, floor, [&](int, float logit) { sum += kept_mass(logit); });
      sum = sum_of_lanes(sum);
      __syncthreads();  // all have read the sums of the round before
      if (lane == 0) shared.sums[warp] = sum;
      __syncthreads();
      if (is_whole) target = __umul64hi(uniform, sum_of_lanes(lane < num_warps ? shared.sums[lane] : 0));
      for (int at = 0; target >= shared.sums[at]; ++at) {
        target -= shared.sums[at];
        first += part;
      }
    }
    if (warp > 0) return;
    const Mass own = first + lane < end ? kept_mass(logits[first + lane]) : 0, reached = running_sum(own);
    if (reached - own <= target && target < reached) *out = first + lane;
  }
};

// One CTA for each row.
__global__ void __launch_bounds__(kMaxSampleThreads) sample_tokens(const SampleProblem problem) {
  const int64_t row = blockIdx.x;
  RowSampler sampler(problem, row);
  if (problem.temperatures[row] == 0) {
    if (threadIdx.x == 0) problem.out[row] = sampler.best.token;
    return;
  }
  const int64_t count = problem.top_k[row];
  if (0 < count && count < problem.vocab_size) sampler.cut(0, static_cast<Mass>(count));
  if (problem.top_p[row] < 1) sampler.cut(problem.top_p[row], 0);
  sampler.draw(uniform(problem.seeds[row], problem.positions[row]), problem.out + row);
}

}  // namespace headway

HEADWAY_API int headway_sample_tokens(const headway::SampleProblem* problem) {
  using namespace headway;
  if (problem->num_rows == 0) return 0;
  const int64_t num_threads = (problem->vocab_size + 31) / 32 * 32;
  return launch(sample_tokens, dim3{static_cast<unsigned>(problem->num_rows), 1, 1},
                dim3{static_cast<unsigned>(num_threads < kMaxSampleThreads ? num_threads : kMaxSampleThreads), 1, 1},
                sizeof(RowSampler::Shared), problem->stream, *problem);
}
