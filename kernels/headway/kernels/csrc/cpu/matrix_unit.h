// Products by the processor's matrix unit (Intel AMX), where the variant has it: sixteen rows by sixteen columns at once.
//
// It reads packed panels as they are. A line of a panel has four bytes of each of its columns: the weights of two input
// features in bfloat16, of four in codes of a byte. A row of x has the same features next to each other. Every product is
// summed over the lines in their order, in one accumulator: a row's result does not depend on the rows beside it.
#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "linear_tile.h"

namespace headway {

constexpr int64_t kUnitRows = 32;  // rows of x that are multiplied at once: two tiles

#if defined(__AMX_TILE__)

constexpr bool kHasMatrixUnit = true;

constexpr int64_t kLineBytes = kPanel * 4;  // of a panel
constexpr int64_t kTileSide = 16, kTileLineBytes = 64;

// x in bfloat16, weights in bfloat16, sums in float32.
struct Bfloat16Products {
  template <int kSum, int kX, int kWeights>
  static void add() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kX), "i"(kWeights));
  }
};

// x in unsigned bytes, weights in signed ones, sums in int32.
struct ByteProducts {
  template <int kSum, int kX, int kWeights>
  static void add() {
    asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kX), "i"(kWeights));
  }
};

// A panel that lies in memory as the unit reads it.
struct PackedLines {
  const void* panel;

  const char* operator()(int64_t first, int64_t) const { return static_cast<const char*>(panel) + first * kLineBytes; }
};

// A panel of bytes, widened to bfloat16, which holds each exactly, in memory of this thread: all of it at once, for many
// rows, or what is asked for.
class WidenedLines {
 public:
  WidenedLines(const int8_t* panel, int64_t depth, bool is_at_once, Ahead& ahead)
      : panel_(panel), depth_(depth), is_at_once_(is_at_once), ahead_(ahead) {
    const int64_t num_lines = (depth + 1) / 2;
    buffer().resize(is_at_once ? num_lines : kTileSide);
    if (is_at_once) widen(0, num_lines);
  }

  const char* operator()(int64_t first, int64_t count) const {
    if (!is_at_once_) widen(first, count);
    return reinterpret_cast<const char*>(&buffer()[is_at_once_ ? first : 0]);
  }

 private:
  struct alignas(64) Line {
    UintVec pairs[kPanelVecs];
  };

  static std::vector<Line>& buffer() {
    thread_local std::vector<Line> lines;
    return lines;
  }

  void widen(int64_t first, int64_t count) const {
    Line* const lines = buffer().data();
    for (int64_t i = 0; i < count; ++i) {
      ahead_.ask();
      ahead_.ask();
      const int64_t k = 2 * (first + i);
      const int8_t* const row = panel_ + k * kPanel;
      for (int c = 0; c < kPanelVecs; ++c) {
        const UintVec even = reinterpret_cast<UintVec>(load(row + c * kLanes));
        UintVec odd{};
        if (k + 1 < depth_) odd = reinterpret_cast<UintVec>(load(row + kPanel + c * kLanes));
        lines[i].pairs[c] = odd | even >> 16;
      }
    }
  }

  const int8_t* panel_;
  int64_t depth_;
  bool is_at_once_;
  Ahead& ahead_;
};

// This thread's use of the unit, for a number of rows. Its registers: 0 to 3 sums, 4 and 5 rows of x, 6 and 7 weights.
class MatrixUnit {
 public:
  MatrixUnit() = default;
  MatrixUnit(const MatrixUnit&) = delete;
  MatrixUnit& operator=(const MatrixUnit&) = delete;
  ~MatrixUnit() {
    if (num_rows_) asm volatile("tilerelease");
  }

  // sums[r * kPanel + c] of num_rows rows, at most kUnitRows, with all columns of a panel of num_lines lines, of which
  // panel(first, count) gives some, until its next call. `x_bytes` of each row stand for them; the rest of the last line's
  // are zeros in the panel.
  template <class Products, class Lines, class Sum>
  void multiply(const void* x, int64_t x_stride_bytes, int64_t x_bytes, const Lines& panel, int64_t num_lines,
                int64_t num_rows, Ahead& ahead, Sum* sums) {
    set_rows(num_rows);
    const Operands<Lines> operands{static_cast<const char*>(x), x_stride_bytes, x_bytes, panel, num_lines};
    const int64_t sums_stride = kPanel * sizeof(Sum);
    if (num_rows <= kTileSide) {
      zero_sums();
      for_each_tile_line(operands, num_rows, [&](const char* rows, int64_t stride, const char* lines) {
        load<4>(rows, stride);
        load<6>(lines, kLineBytes);
        Products::template add<0, 4, 6>();
        load<7>(lines + kTileLineBytes, kLineBytes);
        Products::template add<1, 4, 7>();
        ask(ahead, 64);
        load<6>(lines + 2 * kTileLineBytes, kLineBytes);
        Products::template add<2, 4, 6>();
        load<7>(lines + 3 * kTileLineBytes, kLineBytes);
        Products::template add<3, 4, 7>();
      });
      store<0>(sums, sums_stride);
      store<1>(sums + kTileSide, sums_stride);
      store<2>(sums + 2 * kTileSide, sums_stride);
      store<3>(sums + 3 * kTileSide, sums_stride);
      return;
    }
    for (int64_t half = 0; half < 2; ++half) {
      zero_sums();
      for_each_tile_line(operands, num_rows, [&](const char* rows, int64_t stride, const char* lines) {
        lines += half * 2 * kTileLineBytes;
        load<4>(rows, stride);
        load<6>(lines, kLineBytes);
        Products::template add<0, 4, 6>();
        load<7>(lines + kTileLineBytes, kLineBytes);
        Products::template add<1, 4, 7>();
        ask(ahead, 16);
        load<5>(rows + kTileSide * stride, stride);
        Products::template add<2, 5, 6>();
        Products::template add<3, 5, 7>();
      });
      Sum* const left = sums + half * 2 * kTileSide;
      store<0>(left, sums_stride);
      store<1>(left + kTileSide, sums_stride);
      store<2>(left + kTileSide * kPanel, sums_stride);
      store<3>(left + kTileSide * kPanel + kTileSide, sums_stride);
    }
  }

 private:
  template <class Lines>
  struct Operands {
    const char* x;
    int64_t x_stride, x_bytes;
    const Lines& panel;
    int64_t num_lines;
  };

  template <int kTile>
  static void load(const void* first, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(first), "r"(stride), "i"(kTile) : "memory");
  }

  template <int kTile>
  static void store(void* first, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(first), "r"(stride), "i"(kTile) : "memory");
  }

  static void zero_sums() {
    asm volatile("tilezero %tmm0\n\ttilezero %tmm1\n\ttilezero %tmm2\n\ttilezero %tmm3");
  }

  static void ask(Ahead& ahead, int num_lines) {
    for (int i = 0; i < num_lines && ahead.next < ahead.end; ++i) ahead.ask();
  }

  // body(rows, stride, lines) for every sixteen lines of the panel. What is left at the end is copied and filled up with
  // zeros: behind it lies something else.
  template <class Lines, class Body>
  static void for_each_tile_line(const Operands<Lines>& o, int64_t num_rows, const Body& body) {
    const int64_t num_whole = std::min(o.num_lines, o.x_bytes / 4) / kTileSide;
    for (int64_t i = 0; i < num_whole; ++i)
      body(o.x + i * kTileLineBytes, o.x_stride, o.panel(i * kTileSide, kTileSide));
    const int64_t num_left = o.num_lines - num_whole * kTileSide, bytes_left = o.x_bytes - num_whole * kTileLineBytes;
    if (num_left == 0) return;
    alignas(64) char rows[kUnitRows * kTileLineBytes] = {}, lines[kTileSide * kLineBytes] = {};
    for (int64_t r = 0; r < num_rows; ++r)
      std::memcpy(rows + r * kTileLineBytes, o.x + r * o.x_stride + num_whole * kTileLineBytes, bytes_left);
    std::memcpy(lines, o.panel(num_whole * kTileSide, num_left), num_left * kLineBytes);
    body(rows, kTileLineBytes, lines);
  }

  void set_rows(int64_t num_rows) {
    if (num_rows == num_rows_) return;
    num_rows_ = num_rows;
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t line_bytes[16] = {};
      uint8_t lines[16] = {};
    } shape;
    const int64_t top = std::min(num_rows, kTileSide), bottom = num_rows - top;
    const int64_t lines[] = {top, top, bottom ? bottom : top, bottom ? bottom : top, top, bottom ? bottom : top,
                             kTileSide, kTileSide};
    for (int tile = 0; tile < 8; ++tile) {
      shape.line_bytes[tile] = kTileLineBytes;
      shape.lines[tile] = static_cast<uint8_t>(lines[tile]);
    }
    asm volatile("ldtilecfg %0" ::"m"(shape));
  }

  int64_t num_rows_ = 0;  // that the registers are set up for
};

#else

constexpr bool kHasMatrixUnit = false;

class MatrixUnit {};

#endif

// Whether products of these types are the matrix unit's.
template <class X, class Weight>
constexpr bool kOnMatrixUnit = false;
template <>
inline constexpr bool kOnMatrixUnit<bfloat16, bfloat16> = kHasMatrixUnit;
template <>
inline constexpr bool kOnMatrixUnit<bfloat16, int8_t> = kHasMatrixUnit;

// A panel as `multiply_panel_rows` takes it, for num_rows rows in all.
template <class X, class Weight>
inline auto open_panel(const Weight* panel, [[maybe_unused]] int64_t depth, [[maybe_unused]] int64_t num_rows,
                       [[maybe_unused]] Ahead& ahead) {
#if defined(__AMX_TILE__)
  if constexpr (kOnMatrixUnit<X, Weight> && std::is_same_v<Weight, int8_t>)
    return WidenedLines(panel, depth, num_rows > kTileSide, ahead);
  else if constexpr (kOnMatrixUnit<X, Weight>)
    return PackedLines{panel};
  else
    return panel;
#else
  return panel;
#endif
}

// Rows of x that are multiplied at once.
template <class X, class Weight>
constexpr int64_t kRowsAtOnce = kOnMatrixUnit<X, Weight> ? kUnitRows : kTileRows;

// finish(r, sums) for each of num_rows rows, at most kRowsAtOnce, with the row's products in the order of the panel's
// features. `panel` was opened.
template <class X, class Weight, class Finish>
inline void multiply_panel_rows(MatrixUnit&, int64_t num_rows, const X* x, int64_t x_stride, const Weight* panel,
                                int64_t depth, Ahead& ahead, const Finish& finish) {
  multiply_rows(num_rows, x, x_stride, panel, depth, ahead, finish);
}

#if defined(__AMX_TILE__)

template <class X, class Lines, class Finish>
inline void multiply_panel_rows(MatrixUnit& unit, int64_t num_rows, const X* x, int64_t x_stride, const Lines& panel,
                                int64_t depth, Ahead& ahead, const Finish& finish) {
  alignas(64) float sums[kUnitRows * kPanel];
  unit.multiply<Bfloat16Products>(x, x_stride * sizeof(X), depth * sizeof(X), panel, (depth + 1) / 2, num_rows, ahead,
                                  sums);
  for (int64_t r = 0; r < num_rows; ++r) {
    Vec row[kPanelVecs];
    for (int c = 0; c < kPanelVecs; ++c) row[c] = load(sums + r * kPanel + c * kLanes);
    finish(r, row);
  }
}

#endif

}  // namespace headway
