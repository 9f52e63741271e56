// What every kernel's C entry point shares. Each takes a pointer to a struct of its operands, all fields of eight
// bytes (integers, pointers, doubles), which cpu.py packs in the same order.
#pragma once

#include <cstdint>

#include "vec.h"

#define HEADWAY_API extern "C" __attribute__((visibility("default")))

namespace headway {

constexpr int64_t kFloat32 = 0, kBFloat16 = 1;  // as in cpu.py

// Calls body(float{}) or body(bfloat16{}).
template <class Body>
inline void with_dtype(int64_t dtype, Body body) {
  if (dtype == kBFloat16)
    body(bfloat16{});
  else
    body(float{});
}


// Floats touched below which a second thread costs more than it saves.
constexpr int64_t kParallelFloats = 16384;

// body(i) for i in [0, n), in equal ranges over at most num_threads threads of the process's OpenMP pool.
template <class Body>
inline void parallel_for(int64_t n, int64_t floats_each, int64_t num_threads, Body body) {
#pragma omp parallel for schedule(static) num_threads(num_threads) if (n * floats_each >= kParallelFloats)
  for (int64_t i = 0; i < n; ++i) body(i);
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
