// What every kernel's C entry point shares. Each takes a pointer to a struct of its operands, all fields of eight
// bytes (integers, pointers, doubles), which cpu.py packs in the same order, and returns 0, or the code of a fault that
// it found in their content; then it has written nothing.
#pragma once

#include <cstdint>

#include "vec.h"

#define HEADWAY_API extern "C" __attribute__((visibility("default")))

namespace headway {

constexpr int64_t kFloat32 = 0, kBFloat16 = 1, kInt8 = 2;  // as in cpu.py

// Calls body(float{}) or body(bfloat16{}).
template <class Body>
inline void with_dtype(int64_t dtype, Body body) {
  if (dtype == kBFloat16)
    body(bfloat16{});
  else
    body(float{});
}

// int32 or int64 numbers behind one pointer.
struct Indices {
  const void* data;
  int64_t is_int64;

  int64_t operator[](int64_t i) const {
    return is_int64 ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
};

}  // namespace headway
