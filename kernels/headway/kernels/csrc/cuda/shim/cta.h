// Runs a kernel's CTAs on the CPU, one after the other, each thread a fiber, and finds what a GPU leaves undefined.
#pragma once

#include <cstddef>
#include <cstdint>

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

// Where the running thread is, as CUDA names it.
inline dim3 threadIdx, blockIdx, blockDim, gridDim;

constexpr int warpSize = 32;

namespace headway::shim {

constexpr int kLanes = warpSize;

// Where a barrier or a warp's operation stands in the source: threads that meet must stand at the same place.
struct Place {
  const char* file;
  int line;

  bool operator==(const Place& other) const { return line == other.line && file == other.file; }
};

struct Kernel {
  void (*run)(void* operands);  // one thread of it
  void* operands;
  dim3 grid, block;
  size_t shared_bytes;
  bool is_early;  // may start before the last one has ended, for which each thread must wait
};

// Runs all CTAs. Returns false if one did what is undefined on a GPU; `last_error` then tells what, and where.
bool launch(const Kernel& kernel);

// Empty if there was none.
const char* last_error();

// How threads take turns: 0 the first warp as far as it can go, then the next; 1 the last warp and thread first;
// others seed a random order. A result that depends on it has a race.
void set_schedule(uint64_t schedule);

// What follows is called from within kernels.

// Ends the launch: the running thread did what is undefined. `format` takes the place and `detail`.
[[noreturn]] void fail(const char* what, Place place);

// `__syncthreads`.
void meet_cta(Place place);

// Until the kernel before has ended: at once, since kernels run one after the other.
void wait_for_last();
// Loads and stores of several numbers at once.
void check_aligned(const void* address, size_t bytes, Place place);

// Waits until all lanes of `mask` have called it from `place`, runs `exchange` once over their operands (null where a
// lane is not in the mask) and lets them go on.
void meet_warp(const char* operation, uint32_t mask, Place place, void* operand, void (*exchange)(void** operands));

// The CTA's dynamic shared memory; it holds NaNs in every format when the CTA starts.
unsigned char* shared_memory();

// True if [address, address + bytes) lies in the CTA's dynamic shared memory.
bool is_shared(const void* address, size_t bytes);

// `cp.async`: the copy takes place when a wait of this thread covers its group, and until then shared memory holds
// NaNs. Where `valid` is false zeros arrive, and nothing is read.
void start_copy(void* shared, const void* global, size_t bytes, bool valid, Place place);
void commit_copies();
void wait_copies(int num_pending);

}  // namespace headway::shim
