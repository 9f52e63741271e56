// Linear layers in float32 and bfloat16, summed in float32, over weights that are packed once into the panels of
// linear_tile.h: in the layer's type, or int8 with one scale for each output feature.
#include "activate.h"
#include "linear_panels.h"

namespace headway {

// A gated layer has two halves of output features. A panel holds gates in the first half of its registers, and the
// features that they gate in the second.
inline int64_t output_width(int64_t out_features, int64_t is_gated) {
  return is_gated ? out_features / 2 : out_features;
}

inline int64_t panel_columns(int64_t is_gated) { return is_gated ? kPanel / 2 : kPanel; }

inline int64_t count_panels(int64_t out_features, int64_t is_gated) {
  const int64_t columns = panel_columns(is_gated);
  return (output_width(out_features, is_gated) + columns - 1) / columns;
}

struct PackProblem {
  int64_t num_threads;
  int64_t weight_dtype;
  void* panels;
  const void* weight;  // [out_features, in_features], of the same type
  int64_t stride;      // elements from one row to the next
  int64_t in_features, out_features, is_gated;
};

struct LinearProblem {
  int64_t num_threads, dtype;
  void* out;  // [num_rows, output_width]
  const void* x;
  int64_t x_stride;
  const void* panels;    // int8 if there are scales, else of the layer's type
  const float* scales;   // [out_features], or null
  const float* bias;     // [out_features], or null
  const void* residual;  // as out, or null; not with a gate
  int64_t residual_stride;
  int64_t num_rows, in_features, out_features, is_gated;
  int64_t activation;  // of the output, or of the gates
};

// write(Full), or write(Partial) where a row has less than a register of columns left, or nothing.
template <class Write>
inline void write_columns(int64_t num_left, Write write) {
  if (num_left >= kLanes)
    write(Full{});
  else if (num_left > 0)
    write(Partial{static_cast<int>(num_left)});
}

// The products with `column` and its neighbours: scaled if the weights are, the bias added if there is one.
template <class Lanes>
inline Vec finish_sum(const LinearProblem& p, int64_t column, Vec sum, Lanes lanes) {
  if (p.scales) sum *= load(p.scales + column, lanes);
  if (p.bias) sum += load(p.bias + column, lanes);
  return sum;
}

template <class T>
inline void finish_plain(const LinearProblem& p, int64_t row, int64_t column, const Vec (&sums)[kPanelVecs]) {
  for (int c = 0; c < kPanelVecs; ++c, column += kLanes)
    write_columns(p.out_features - column, [&](auto lanes) {
      Vec y = activate(p.activation, finish_sum(p, column, sums[c], lanes));
      if (p.residual) y += load(static_cast<const T*>(p.residual) + row * p.residual_stride + column, lanes);
      store(static_cast<T*>(p.out) + row * p.out_features + column, y, lanes);
    });
}

template <class T>
inline void finish_gated(const LinearProblem& p, int64_t row, int64_t column, const Vec (&sums)[kPanelVecs]) {
  const int64_t width = p.out_features / 2;
  for (int c = 0; c < kPanelVecs / 2; ++c, column += kLanes)
    write_columns(width - column, [&](auto lanes) {
      const Vec gate = finish_sum(p, column, sums[c], lanes);
      const Vec value = finish_sum(p, width + column, sums[c + kPanelVecs / 2], lanes);
      store(static_cast<T*>(p.out) + row * width + column, activate(p.activation, gate) * value, lanes);
    });
}

template <class T>
inline void finish_row(const LinearProblem& p, int64_t row, int64_t column, const Vec (&sums)[kPanelVecs]) {
  if (p.is_gated)
    finish_gated<T>(p, row, column, sums);
  else
    finish_plain<T>(p, row, column, sums);
}

template <class Weight>
inline void pack_panels(const PackProblem& p) {
  constexpr int64_t kStep = kInterleaved<Weight>;
  const int64_t width = output_width(p.out_features, p.is_gated), columns = panel_columns(p.is_gated);
  const int64_t num_panels = count_panels(p.out_features, p.is_gated), size = panel_size<Weight>(p.in_features);
  parallel_for(num_panels, size, p.num_threads, [&](int64_t panel) {
    Weight* out = static_cast<Weight*>(p.panels) + panel * size;
    std::fill_n(out, size, Weight{});
    for (int64_t i = 0; i < kPanel; ++i) {
      const int64_t column = panel * columns + i % columns;
      if (column >= width) continue;
      const Weight* row = static_cast<const Weight*>(p.weight) + (i < columns ? column : width + column) * p.stride;
      for (int64_t k = 0; k < p.in_features; ++k) out[(k - k % kStep) * kPanel + i * kStep + k % kStep] = row[k];
    }
  });
}

}  // namespace headway

// Elements that the packed weight takes.
HEADWAY_API int64_t headway_packed_size(int64_t weight_dtype, int64_t in_features, int64_t out_features,
                                        int64_t is_gated) {
  using namespace headway;
  int64_t size = 0;
  with_weight_dtype(weight_dtype, [&](auto weight) { size = panel_size<decltype(weight)>(in_features); });
  return count_panels(out_features, is_gated) * size;
}

HEADWAY_API int headway_pack_linear(const headway::PackProblem* problem) {
  using namespace headway;
  with_weight_dtype(problem->weight_dtype, [=](auto weight) { pack_panels<decltype(weight)>(*problem); });
  return 0;
}

// y = scales * x weight^T + bias. out = activation(y) + residual; gated, with y in halves: out = activation(gate) * value.
HEADWAY_API int headway_linear(const headway::LinearProblem* problem) {
  using namespace headway;
  const LinearProblem& p = *problem;
  const int64_t num_panels = count_panels(p.out_features, p.is_gated), columns = panel_columns(p.is_gated);
  with_dtype(p.dtype, [&](auto type) {
    using T = decltype(type);
    const auto multiply = [&](auto weight) {
      multiply_panels(static_cast<const T*>(p.x), p.x_stride, p.num_rows,
                      static_cast<const decltype(weight)*>(p.panels), num_panels, p.in_features, p.num_threads,
                      [&](int64_t row, int64_t panel, const Vec(&sums)[kPanelVecs]) {
                        finish_row<T>(p, row, panel * columns, sums);
                      });
    };
    if (p.scales)
      multiply(int8_t{});
    else
      multiply(T{});
  });
  return 0;
}
