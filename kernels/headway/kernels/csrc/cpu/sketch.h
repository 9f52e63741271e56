// A sketch of a weight: int8 codes, and how far a product with them can be off.
//
// A row of the weight is w = scale * code + what is left, and a row of x is rounded alike, with codes moved by 128 into
// unsigned bytes. With a the product of the two rounded rows,
//
//     |x w - a| <= |x - x'| |w'| + |x| |w - w'|   (Cauchy-Schwarz; |.| is the Euclidean norm, ' what the codes stand for),
//
// to which the norms here add what the sums of the exact product may be rounded by.
//
// Codes lie in panels like those of linear_tile.h, four input features of an output feature next to each other, and behind
// them what is known of each output feature. Where the processor cannot multiply bytes (AVX-512 VNNI) there is no sketch.
#pragma once

#include <cmath>

#include "linear_panels.h"

namespace headway {

#if defined(__AVX512VNNI__)
constexpr bool kHasSketch = true;
#else
constexpr bool kHasSketch = false;
#endif

constexpr int kQuad = 4, kLargestCode = 127, kCodeShift = 128;

// Up to here the sums of the codes' products fit into 32 bits.
constexpr int64_t kMaxSketchDepth = 1 << 16;

// Norms are summed in float32, and are made this much larger.
constexpr float kSafety = 1.001f;

inline int64_t count_quads(int64_t depth) { return (depth + kQuad - 1) / kQuad; }

// Of each output feature of a panel.
struct PanelBounds {
  float scale[kPanel];
  float reach[kPanel];    // |w'|
  float rest[kPanel];     // |w - w'|, and what the exact product is rounded by for each |x|
  int32_t start[kPanel];  // what takes the codes' shift out of their sums
};

inline int64_t sketch_panel_bytes(int64_t depth) { return count_quads(depth) * kQuad * kPanel + sizeof(PanelBounds); }

// A relative bound of what a sum of `depth` products is rounded by in float32, and what is done with it afterwards.
inline float rounding(int64_t depth) { return (depth + 8) * 0x1p-23f; }

// Rounds row[0, depth) to codes; write(k, code) takes them. Returns their scale, |what they stand for| and |what they leave|.
struct Rounded {
  float scale, reach, rest;
};

template <class Write>
inline Rounded round_row(const float* row, int64_t depth, Write write) {
  float largest = 0;
  for (int64_t k = 0; k < depth; ++k) largest = std::max(largest, std::fabs(row[k]));
  const float scale = largest / kLargestCode, inverse = scale > 0 ? 1 / scale : 0;
  float reach = 0, rest = 0;
  for (int64_t k = 0; k < depth; ++k) {
    const float code = std::min(std::max(std::nearbyint(row[k] * inverse), -127.0f), 127.0f);
    const float rounded = scale * code, left = row[k] - rounded;
    reach += rounded * rounded;
    rest += left * left;
    write(k, static_cast<int>(code));
  }
  return {scale, std::sqrt(reach) * kSafety, std::sqrt(rest) * kSafety};
}

}  // namespace headway
