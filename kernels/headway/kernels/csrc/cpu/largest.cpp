// The largest output of a linear layer for each row: products with a sketch of the weight rule most outputs out, and the
// others are computed as headway_linear computes them.
#include <numeric>

#include "sketch.h"
#include "whole_search.h"

namespace headway {

struct SketchProblem {
  int64_t num_threads, weight_dtype;
  void* sketch;
  const void* weight;  // [out_features, in_features]
  int64_t stride;
  const float* scales;  // [out_features], of weights in int8; else null
  int64_t in_features, out_features;
};

#if defined(__AVX512VNNI__)

// ---- making a sketch ------------------------------------------------------------------------------------------

inline PanelBounds& bounds_of(void* sketch, int64_t panel, int64_t depth) {
  char* end = static_cast<char*>(sketch) + (panel + 1) * sketch_panel_bytes(depth);
  return *reinterpret_cast<PanelBounds*>(end - sizeof(PanelBounds));
}

template <class Weight>
inline void sketch_feature(const SketchProblem& p, int64_t column, std::vector<float>& row) {
  const Weight* weights = static_cast<const Weight*>(p.weight) + column * p.stride;
  const float scale = p.scales ? p.scales[column] : 1;
  float norm = 0;
  for (int64_t k = 0; k < p.in_features; ++k) {
    row[k] = widen(weights[k]) * scale;
    norm += row[k] * row[k];
  }
  const int64_t panel = column / kPanel, lane = column % kPanel;
  PanelBounds& bounds = bounds_of(p.sketch, panel, p.in_features);
  if (!std::isfinite(norm)) {
    bounds.rest[lane] = std::numeric_limits<float>::infinity();  // nothing is known of it, and its codes are zeros
    return;
  }
  int8_t* codes = static_cast<int8_t*>(p.sketch) + panel * sketch_panel_bytes(p.in_features) + lane * kQuad;
  int32_t sum = 0;
  const Rounded rounded = round_row(row.data(), p.in_features, [&](int64_t k, int code) {
    codes[k / kQuad * kQuad * kPanel + k % kQuad] = static_cast<int8_t>(code);
    sum += code;
  });
  bounds.scale[lane] = rounded.scale;
  bounds.reach[lane] = rounded.reach;
  bounds.rest[lane] = rounded.rest + rounding(p.in_features) * std::sqrt(norm) * kSafety;
  bounds.start[lane] = -kCodeShift * sum;
}

inline void make_sketch(const SketchProblem& p) {
  const int64_t num_panels = (p.out_features + kPanel - 1) / kPanel, bytes = sketch_panel_bytes(p.in_features);
  parallel_for(num_panels, kPanel * p.in_features, p.num_threads, [&](int64_t panel) {
    std::memset(static_cast<char*>(p.sketch) + panel * bytes, 0, bytes);
    std::vector<float> row(p.in_features);
    const int64_t end = std::min(p.out_features, (panel + 1) * kPanel);
    for (int64_t column = panel * kPanel; column < end; ++column)
      with_weight_dtype(p.weight_dtype, [&](auto weight) { sketch_feature<decltype(weight)>(p, column, row); });
  });
}

// ---- searching ------------------------------------------------------------------------------------------------

constexpr int kMaxCandidates = 512;

struct Candidate {
  float upper;  // the output is at most this
  int32_t column;
};

// What is known of a row. Whoever finds outputs that may be the largest writes them down under its lock.
struct alignas(64) RowSearch {
  float scale, rest, norm;  // of x: see `Rounded`; |x|
  std::atomic<float> least;  // the largest output is at least this
  std::atomic_flag lock;
  bool is_undecided;  // too many may be the largest
  int32_t num_candidates;
  Candidate candidates[kMaxCandidates];

  void forget_beaten() {
    const float limit = least.load(std::memory_order_relaxed);
    num_candidates = static_cast<int32_t>(
        std::remove_if(candidates, candidates + num_candidates, [=](const Candidate& c) { return c.upper < limit; }) -
        candidates);
  }

  void add(Candidate candidate) {
    if (num_candidates == kMaxCandidates) forget_beaten();
    if (num_candidates == kMaxCandidates)
      is_undecided = true;
    else
      candidates[num_candidates++] = candidate;
  }
};

// Outputs of one type that are rounded to it can be equal though one is larger before: by how much, of their magnitude.
template <class T>
constexpr float kGrain = 0;
template <>
inline constexpr float kGrain<bfloat16> = 0x1p-7f;

template <class T>
inline void round_x(const LargestProblem& p, int64_t row, RowSearch& search, uint8_t* codes) {
  const T* x = static_cast<const T*>(p.x) + row * p.x_stride;
  std::vector<float> wide(p.in_features);
  copy_row(x, wide.data(), p.in_features);
  float norm = 0;
  for (const float value : wide) norm += value * value;
  search.is_undecided = !std::isfinite(norm);
  search.num_candidates = 0;
  search.lock.clear();
  search.least.store(-std::numeric_limits<float>::infinity(), std::memory_order_relaxed);
  search.norm = std::sqrt(norm) * kSafety;
  search.scale = search.rest = 0;
  if (search.is_undecided) return;
  const Rounded rounded = round_row(wide.data(), p.in_features, [=](int64_t k, int code) {
    codes[k] = static_cast<uint8_t>(code + kCodeShift);
  });
  search.scale = rounded.scale;
  search.rest = rounded.rest;
}

// Of a row's outputs in a panel: what the largest is at least, and which of them may be the largest of all.
template <class T>
inline void note_candidates(const PanelBounds& bounds, int64_t column, int64_t num_columns, RowSearch& search,
                            const Vec (&uppers)[kPanelVecs]) {
  float upper[kPanel];
  for (int c = 0; c < kPanelVecs; ++c) store(upper + c * kLanes, uppers[c]);
  while (search.lock.test_and_set(std::memory_order_acquire)) _mm_pause();
  float least = search.least.load(std::memory_order_relaxed);
  for (int64_t i = 0; i < num_columns; ++i) {
    if (upper[i] < least) continue;
    const float lower = upper[i] - 2 * (search.rest * bounds.reach[i] + search.norm * bounds.rest[i]);
    if (lower > least) least = lower - std::fabs(lower) * kGrain<T>;
  }
  search.least.store(least, std::memory_order_relaxed);
  for (int64_t i = 0; i < num_columns; ++i)
    if (upper[i] >= least) search.add({upper[i], static_cast<int32_t>(column + i)});
  search.lock.clear(std::memory_order_release);
}

// What the products of a row's codes with a panel's tell of its outputs.
template <class T>
inline void weigh(const LargestProblem& p, const PanelBounds& bounds, int64_t panel, RowSearch& search,
                  const __m512i (&sums)[kPanelVecs]) {
  const float least = search.least.load(std::memory_order_relaxed);
  Vec uppers[kPanelVecs];
  IntVec may_win{};
#pragma GCC unroll 8
  for (int c = 0; c < kPanelVecs; ++c) {
    const Vec product = reinterpret_cast<Vec>(_mm512_cvtepi32_ps(sums[c]));
    const Vec scale = load(bounds.scale + c * kLanes) * search.scale;
    const Vec slack = load(bounds.reach + c * kLanes) * search.rest + load(bounds.rest + c * kLanes) * search.norm;
    uppers[c] = product * scale + slack;
    may_win |= uppers[c] >= least;
  }
  const int64_t column = panel * kPanel;
  if (_mm512_test_epi32_mask(reinterpret_cast<__m512i>(may_win), reinterpret_cast<__m512i>(may_win)))
    note_candidates<T>(bounds, column, std::min(kPanel, p.out_features - column), search, uppers);
}

#if defined(__AMX_TILE__)

constexpr int64_t kSearchRows = kUnitRows;

template <class T>
inline void search_rows(int64_t num_rows, const LargestProblem& p, RowSearch* searches, const uint8_t* x,
                        int64_t x_stride, int64_t panel, Ahead& ahead) {
  const int8_t* codes = static_cast<const int8_t*>(p.sketch) + panel * sketch_panel_bytes(p.in_features);
  const PanelBounds& bounds = bounds_of(const_cast<void*>(p.sketch), panel, p.in_features);
  alignas(64) int32_t products[kUnitRows * kPanel];
  MatrixUnit().multiply<ByteProducts>(x, x_stride, x_stride, PackedLines{codes}, count_quads(p.in_features), num_rows,
                                      ahead, products);
  for (int64_t r = 0; r < num_rows; ++r) {
    __m512i sums[kPanelVecs];
    for (int c = 0; c < kPanelVecs; ++c)
      sums[c] = _mm512_add_epi32(_mm512_loadu_si512(bounds.start + c * kLanes),
                                 _mm512_load_si512(products + r * kPanel + c * kLanes));
    weigh<T>(p, bounds, panel, searches[r], sums);
  }
}

#else

constexpr int64_t kSearchRows = kTileRows;

template <class T, int kRows>
inline void search_tile(const LargestProblem& p, RowSearch* searches, const uint8_t* x, int64_t x_stride, int64_t panel,
                        Ahead& ahead) {
  const int8_t* codes = static_cast<const int8_t*>(p.sketch) + panel * sketch_panel_bytes(p.in_features);
  const PanelBounds& bounds = bounds_of(const_cast<void*>(p.sketch), panel, p.in_features);
  __m512i sums[kRows][kPanelVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int c = 0; c < kPanelVecs; ++c) sums[r][c] = _mm512_loadu_si512(bounds.start + c * kLanes);
  Ahead lines = ahead;
  const int64_t num_quads = count_quads(p.in_features);
  for (int64_t q = 0; q < num_quads; ++q) {
    lines.ask();
    __m512i columns[kPanelVecs];
#pragma GCC unroll 8
    for (int c = 0; c < kPanelVecs; ++c) columns[c] = _mm512_loadu_si512(codes + (q * kPanel + c * kLanes) * kQuad);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      int32_t factors;
      std::memcpy(&factors, x + r * x_stride + q * kQuad, sizeof factors);
#pragma GCC unroll 8
      for (int c = 0; c < kPanelVecs; ++c)
        sums[r][c] = _mm512_dpbusd_epi32(sums[r][c], _mm512_set1_epi32(factors), columns[c]);
    }
  }
  ahead = lines;
  for (int r = 0; r < kRows; ++r) weigh<T>(p, bounds, panel, searches[r], sums[r]);
}

template <class T, int kRows = kTileRows>
inline void search_rows(int64_t num_rows, const LargestProblem& p, RowSearch* searches, const uint8_t* x,
                        int64_t x_stride, int64_t panel, Ahead& ahead) {
  if constexpr (kRows > 1)
    if (num_rows < kRows) return search_rows<T, kRows - 1>(num_rows, p, searches, x, x_stride, panel, ahead);
  search_tile<T, kRows>(p, searches, x, x_stride, panel, ahead);
}

#endif

// An output, as headway_linear gives it.
template <class T, class Weight>
inline float output(const LargestProblem& p, int64_t row, int64_t column) {
  const T* x = static_cast<const T*>(p.x) + row * p.x_stride;
  const Weight* panel = static_cast<const Weight*>(p.panels) + column / kPanel * panel_size<Weight>(p.in_features);
  const int64_t place = column % kPanel, lane = column % kLanes;
  Ahead nothing;
  float value = 0;
  if constexpr (kOnMatrixUnit<T, Weight>) {
    MatrixUnit unit;
    multiply_panel_rows(unit, 1, x, p.x_stride, open_panel<T>(panel, p.in_features, 1, nothing), p.in_features, nothing,
                        [&](int64_t, const Vec(&sums)[kPanelVecs]) { value = sums[place / kLanes][lane]; });
  } else
    multiply_tile<1, 1>(x, p.x_stride, panel + (place - lane) * kInterleaved<Weight>, p.in_features, nothing,
                        [&](int, const Vec(&sums)[1]) { value = sums[0][lane]; });
  return as_stored<T>(p.scales ? value * p.scales[column] : value);
}

// The largest of a row's candidates; -1 if the sketch does not tell.
template <class T>
inline void decide(const LargestProblem& p, int64_t row, RowSearch& search) {
  p.columns[row] = -1;
  search.forget_beaten();
  if (search.is_undecided || search.num_candidates == 0) return;
  Largest largest;
  std::sort(search.candidates, search.candidates + search.num_candidates,
            [](const Candidate& a, const Candidate& b) { return a.upper > b.upper; });
  for (int32_t i = 0; i < search.num_candidates; ++i) {
    const Candidate candidate = search.candidates[i];
    if (as_stored<T>(candidate.upper) < largest.value) break;
    largest.offer(p.scales ? output<T, int8_t>(p, row, candidate.column) : output<T, T>(p, row, candidate.column),
                  candidate.column);
  }
  p.values[row] = largest.value;
  p.columns[row] = largest.column;
}

template <class T>
inline void search_sketch(const LargestProblem& p) {
  const int64_t num_panels = (p.out_features + kPanel - 1) / kPanel;
  const int64_t x_stride = count_quads(p.in_features) * kQuad, panel_bytes = sketch_panel_bytes(p.in_features);
  const std::unique_ptr<RowSearch[]> searches(new RowSearch[p.num_rows]);
  const std::unique_ptr<uint8_t[]> codes(new uint8_t[p.num_rows * x_stride]());
  parallel_for(p.num_rows, 4 * p.in_features, p.num_threads, [&](int64_t row) {
    round_x<T>(p, row, searches[row], codes.get() + row * x_stride);
  });
  const int64_t num_quads = count_quads(p.in_features);  // what a product of bytes takes is a quarter
  for_each_panel<kSearchRows>(p.num_rows, num_panels, num_quads, p.num_threads,
                 [&](int64_t panel, int64_t first_row, int64_t last_row, int64_t following) {
                   Ahead ahead;
                   if (following < num_panels)
                     ahead = Ahead::of(static_cast<const char*>(p.sketch) + following * panel_bytes, panel_bytes);
                   for_each_tile<kSearchRows>(first_row, last_row, [&](int64_t top, int64_t end) {
                     search_rows<T>(end - top, p, &searches[top], codes.get() + top * x_stride, x_stride, panel, ahead);
                   });
                 });
  parallel_for(p.num_rows, 16 * p.in_features, p.num_threads, [&](int64_t row) { decide<T>(p, row, searches[row]); });
}

#else

inline void make_sketch(const SketchProblem&) {}

template <class T>
inline void search_sketch(const LargestProblem&) {}

#endif

template <class T>
inline void find_largest(const LargestProblem& p) {
  std::vector<int64_t> undecided;
  if (p.sketch && !p.tally->is_useless) {
    search_sketch<T>(p);
    for (int64_t row = 0; row < p.num_rows; ++row)
      if (p.columns[row] < 0) undecided.push_back(row);
    p.tally->count(p.num_rows, static_cast<int64_t>(undecided.size()));
  } else {
    undecided.resize(p.num_rows);
    std::iota(undecided.begin(), undecided.end(), 0);
  }
  if (undecided.empty()) return;
  if (p.scales)
    search_whole<T, int8_t>(p, undecided);
  else
    search_whole<T, T>(p, undecided);
}

}  // namespace headway

// Bytes that a sketch takes; 0 where there is none.
HEADWAY_API int64_t headway_sketch_size(int64_t in_features, int64_t out_features) {
  using namespace headway;
  if (!kHasSketch || in_features > kMaxSketchDepth) return 0;
  return (out_features + kPanel - 1) / kPanel * sketch_panel_bytes(in_features);
}

HEADWAY_API int headway_sketch_linear(const headway::SketchProblem* problem) {
  headway::make_sketch(*problem);
  return 0;
}

HEADWAY_API int headway_find_largest(const headway::LargestProblem* problem) {
  using namespace headway;
  with_dtype(problem->dtype, [=](auto type) { find_largest<decltype(type)>(*problem); });
  return 0;
}
