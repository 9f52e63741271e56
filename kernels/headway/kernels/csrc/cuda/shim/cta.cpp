#include "cta.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "fiber.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#endif

namespace headway::shim {
namespace {

constexpr size_t kGuardBytes = 4096;
constexpr unsigned char kGuard = 0xa5, kUnset = 0xff;  // all ones is a NaN in every format

enum class State { kReady, kAtBarrier, kInWarp, kDone };

struct Copy {
  void* shared;
  const void* global;
  size_t bytes;
  bool valid;
  int group;
};

struct Thread {
  std::unique_ptr<Fiber> fiber;
  dim3 index;
  int number = 0;
  State state = State::kDone;
  Place place{};  // of the wait
  const char* operation = nullptr;
  uint32_t mask = 0;
  void* operand = nullptr;
  void (*exchange)(void**) = nullptr;
  std::vector<Copy> copies;
  int num_groups = 0;  // of copies, committed so far
  bool has_waited = false;  // for the kernel before
};

// One CTA at a time, in one launch at a time.
struct Cta {
  std::mutex mutex;
  Kernel kernel{};
  std::vector<std::unique_ptr<Thread>> threads;
  size_t num_threads = 0;
  Thread* running = nullptr;
  std::vector<unsigned char> memory;  // guard, shared memory, guard
  size_t shared_offset = 0;
  bool has_failed = false;
  uint64_t schedule = 0;
  uint64_t random = 0;
  std::string error;
};

Cta cta;

std::string described(const Thread& thread) {
  char text[256];
  const char* name = std::strrchr(thread.place.file ? thread.place.file : "", '/');
  std::snprintf(text, sizeof text, "thread %d of block (%u, %u, %u): %s:%d", thread.number, blockIdx.x, blockIdx.y,
                blockIdx.z, name ? name + 1 : thread.place.file, thread.place.line);
  return text;
}

void record_error(const std::string& text) {
  if (!cta.has_failed) cta.error = text;
  cta.has_failed = true;
}

void suspend(State state, Place place, const char* operation) {
  cta.running->state = state;
  cta.running->place = place;
  cta.running->operation = operation;
  cta.running->fiber->leave();
}

// A fiber runs one thread of every CTA.
void run_threads() {
  for (;;) {
    cta.kernel.run(cta.kernel.operands);
    suspend(State::kDone, {}, nullptr);
  }
}

void run(Thread& thread) {
  cta.running = &thread;
  threadIdx = thread.index;
  thread.fiber->enter();
}

// Lets the warp's lanes go on if all in the mask of one of them have come.
void release_warp(size_t warp) {
  const size_t first = warp * kLanes, num_lanes = std::min<size_t>(kLanes, cta.num_threads - first);
  for (size_t lane = 0; lane < num_lanes; ++lane) {
    const Thread& one = *cta.threads[first + lane];
    if (one.state != State::kInWarp) continue;
    void* operands[kLanes] = {};
    bool is_complete = true;
    for (size_t other = 0; other < kLanes && is_complete; ++other) {
      if (!(one.mask >> other & 1)) continue;
      is_complete = other < num_lanes;
      if (!is_complete) break;
      Thread& thread = *cta.threads[first + other];
      is_complete = thread.state == State::kInWarp && thread.mask == one.mask && thread.place == one.place;
      operands[other] = thread.operand;
    }
    if (!is_complete) continue;
    one.exchange(operands);
    for (size_t other = 0; other < num_lanes; ++other)
      if (one.mask >> other & 1) cta.threads[first + other]->state = State::kReady;
    return release_warp(warp);
  }
}

// True if all threads stand at one barrier, which they have then passed.
bool release_cta() {
  const Thread& first = *cta.threads[0];
  for (size_t i = 0; i < cta.num_threads; ++i) {
    const Thread& thread = *cta.threads[i];
    if (thread.state != State::kAtBarrier || !(thread.place == first.place)) return false;
  }
  for (size_t i = 0; i < cta.num_threads; ++i) cta.threads[i]->state = State::kReady;
  return true;
}

uint64_t next_random() {
  cta.random ^= cta.random << 13;
  cta.random ^= cta.random >> 7;
  return cta.random ^= cta.random << 17;
}

// Runs the threads of `order`, all of one warp or of any, until each waits for others. True if any ran.
bool run_until_blocked(const std::vector<Thread*>& order) {
  bool any = false;
  for (bool progress = true; progress && !cta.has_failed;) {
    progress = false;
    for (Thread* thread : order) {
      if (thread->state != State::kReady) continue;
      run(*thread);
      if (cta.has_failed) return true;
      any = progress = true;
    }
    for (size_t warp = 0; warp * kLanes < cta.num_threads; ++warp) release_warp(warp);
  }
  return any;
}

std::vector<std::vector<Thread*>> turns() {
  const bool is_random = cta.schedule > 1;
  std::vector<std::vector<Thread*>> result;
  for (size_t i = 0; i < cta.num_threads; ++i) {
    if (result.empty() || (!is_random && i % kLanes == 0)) result.emplace_back();
    result.back().push_back(cta.threads[i].get());
  }
  if (cta.schedule == 1) {
    std::reverse(result.begin(), result.end());
    for (auto& warp : result) std::reverse(warp.begin(), warp.end());
  }
  if (is_random)
    for (size_t i = cta.num_threads - 1; i > 0; --i) std::swap(result[0][i], result[0][next_random() % (i + 1)]);
  return result;
}

void report_stuck() {
  const Thread* waiting = nullptr;
  const Thread* other = nullptr;
  for (size_t i = 0; i < cta.num_threads; ++i) {
    const Thread* thread = cta.threads[i].get();
    if (!waiting && thread->state != State::kDone) waiting = thread;
    if (waiting && (thread->state != waiting->state || !(thread->place == waiting->place))) other = thread;
  }
  for (size_t i = 0; i < cta.num_threads && !other; ++i)
    if (cta.threads[i]->state == State::kDone) other = cta.threads[i].get();
  std::string text = described(*waiting) + " waits at " + waiting->operation + " for threads that never come";
  if (other && other->state == State::kDone) text += "; thread " + std::to_string(other->number) + " has returned";
  if (other && other->state != State::kDone) text += "; " + described(*other) + " waits at " + other->operation;
  record_error(text);
}

void lay_out_shared_memory() {
  if (!cta.memory.empty()) ASAN_UNPOISON_MEMORY_REGION(cta.memory.data(), cta.memory.size());
  cta.memory.assign(2 * kGuardBytes + 128 + cta.kernel.shared_bytes, kGuard);
  const auto start = reinterpret_cast<uintptr_t>(cta.memory.data()) + kGuardBytes;
  cta.shared_offset = kGuardBytes + (128 - start % 128) % 128;
  std::memset(shared_memory(), kUnset, cta.kernel.shared_bytes);
  ASAN_POISON_MEMORY_REGION(cta.memory.data(), cta.shared_offset);
  const size_t end = cta.shared_offset + cta.kernel.shared_bytes;
  ASAN_POISON_MEMORY_REGION(cta.memory.data() + end, cta.memory.size() - end);
}

void check_guards() {
  ASAN_UNPOISON_MEMORY_REGION(cta.memory.data(), cta.memory.size());
  const size_t end = cta.shared_offset + cta.kernel.shared_bytes;
  for (size_t i = 0; i < cta.memory.size(); ++i)
    if ((i < cta.shared_offset || i >= end) && cta.memory[i] != kGuard)
      return record_error("a CTA wrote outside its shared memory, at byte " +
                          std::to_string(static_cast<long long>(i) - static_cast<long long>(cta.shared_offset)) +
                          " of " + std::to_string(cta.kernel.shared_bytes));
}

void start_threads() {
  const dim3 block = cta.kernel.block;
  cta.num_threads = size_t{block.x} * block.y * block.z;
  while (cta.threads.size() < cta.num_threads) cta.threads.push_back(std::make_unique<Thread>());
  for (size_t i = 0; i < cta.num_threads; ++i) {
    Thread& thread = *cta.threads[i];
    if (!thread.fiber) thread.fiber = std::make_unique<Fiber>(&run_threads);
    const auto number = static_cast<unsigned>(i);
    thread.index = {number % block.x, number / block.x % block.y, number / block.x / block.y};
    thread.number = static_cast<int>(i);
    thread.state = State::kReady;
    thread.copies.clear();
    thread.num_groups = 0;
    thread.has_waited = false;
  }
}

void check_waits() {
  for (size_t i = 0; i < cta.num_threads; ++i)
    if (!cta.threads[i]->has_waited)
      return record_error("thread " + std::to_string(i) + " of an early kernel has not waited for the last one");
}

void run_cta() {
  lay_out_shared_memory();
  start_threads();
  for (bool progress = true; progress && !cta.has_failed;) {
    progress = false;
    for (const auto& order : turns()) {
      if (cta.has_failed) break;
      progress |= run_until_blocked(order);
    }
    if (!cta.has_failed) progress |= release_cta();
  }
  const auto is_done = [](const auto& thread) { return thread->state == State::kDone; };
  const auto end = cta.threads.begin() + static_cast<std::ptrdiff_t>(cta.num_threads);
  if (!cta.has_failed && !std::all_of(cta.threads.begin(), end, is_done)) report_stuck();
  if (cta.kernel.is_early) check_waits();
  check_guards();
}

// What a GPU takes of CTAs and threads; it launches nothing of neither.
void check_size(const char* what, dim3 size, dim3 most) {
  const auto fits = [](unsigned count, unsigned limit) { return 0 < count && count <= limit; };
  if (fits(size.x, most.x) && fits(size.y, most.y) && fits(size.z, most.z)) return;
  char text[256];
  std::snprintf(text, sizeof text, "%s (%u, %u, %u) must have 1 to (%u, %u, %u)", what, size.x, size.y, size.z, most.x,
                most.y, most.z);
  record_error(text);
}

}  // namespace

bool launch(const Kernel& kernel) {
  const std::lock_guard<std::mutex> lock(cta.mutex);
  cta.kernel = kernel;
  cta.has_failed = false;
  cta.error.clear();
  check_size("a grid of", kernel.grid, {0x7fffffff, 65535, 65535});
  check_size("a CTA of", kernel.block, {1024, 1024, 64});
  cta.random = cta.schedule * 0x9e3779b97f4a7c15u + 1;
  blockDim = kernel.block;
  gridDim = kernel.grid;
  for (unsigned z = 0; z < kernel.grid.z; ++z)
    for (unsigned y = 0; y < kernel.grid.y; ++y)
      for (unsigned x = 0; x < kernel.grid.x && !cta.has_failed; ++x) {
        blockIdx = {x, y, z};
        run_cta();
      }
  if (cta.has_failed) cta.threads.clear();  // with what their stacks still hold
  return !cta.has_failed;
}

const char* last_error() { return cta.error.c_str(); }

void set_schedule(uint64_t schedule) { cta.schedule = schedule; }

void fail(const char* what, Place place) {
  cta.running->place = place;
  record_error(described(*cta.running) + ": " + what);
  cta.running->fiber->leave();
  std::abort();
}

void wait_for_last() { cta.running->has_waited = true; }
void check_aligned(const void* address, size_t bytes, Place place) {
  if (reinterpret_cast<uintptr_t>(address) % bytes)
    fail(bytes == 8 ? "an access of several numbers is not aligned to 8 bytes"
                    : "an access of several numbers is not aligned to 16 bytes",
         place);
}

void meet_cta(Place place) { suspend(State::kAtBarrier, place, "__syncthreads"); }

void meet_warp(const char* operation, uint32_t mask, Place place, void* operand, void (*exchange)(void**)) {
  Thread& thread = *cta.running;
  if (!(mask >> (thread.number % kLanes) & 1)) fail("the lane is not in the mask that it gives", place);
  thread.mask = mask;
  thread.operand = operand;
  thread.exchange = exchange;
  suspend(State::kInWarp, place, operation);
}

unsigned char* shared_memory() { return cta.memory.data() + cta.shared_offset; }

bool is_shared(const void* address, size_t bytes) {
  const auto* first = static_cast<const unsigned char*>(address);
  return first >= shared_memory() && first + bytes <= shared_memory() + cta.kernel.shared_bytes;
}

void start_copy(void* shared, const void* global, size_t bytes, bool valid, Place place) {
  if (!is_shared(shared, bytes)) fail("an asynchronous copy goes outside shared memory", place);
  if (reinterpret_cast<uintptr_t>(shared) % bytes || reinterpret_cast<uintptr_t>(global) % bytes)
    fail("an asynchronous copy is not aligned to its size", place);
  std::memset(shared, kUnset, bytes);
  cta.running->copies.push_back({shared, global, bytes, valid, cta.running->num_groups});
}

void commit_copies() { ++cta.running->num_groups; }

void wait_copies(int num_pending) {
  Thread& thread = *cta.running;
  const auto has_to_be_done = [&](const Copy& copy) { return copy.group < thread.num_groups - num_pending; };
  for (const Copy& copy : thread.copies) {
    if (!has_to_be_done(copy)) continue;
    if (copy.valid)
      std::memcpy(copy.shared, copy.global, copy.bytes);
    else
      std::memset(copy.shared, 0, copy.bytes);
  }
  thread.copies.erase(std::remove_if(thread.copies.begin(), thread.copies.end(), has_to_be_done),
                      thread.copies.end());
}

}  // namespace headway::shim
