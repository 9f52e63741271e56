#include "team.h"

#include <pthread.h>

#include <chrono>
#include <mutex>
#include <new>
#include <thread>

#include "wait.h"

namespace headway {
namespace {

// Regions of a step follow each other within this time; after it a thread sleeps.
constexpr std::chrono::microseconds kSpin{50};

class Team {
 public:
  // False if another thread is in here.
  bool run(int64_t num_tasks, int64_t num_threads, Task task, const void* body) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return false;
    grow(num_threads - 1);
    task_ = task;
    body_ = body;
    num_tasks_ = static_cast<uint32_t>(num_tasks);
    num_helpers_.store(num_threads - 1, std::memory_order_relaxed);
    num_open_.store(num_tasks_, std::memory_order_relaxed);
    const uint32_t region = region_.load(std::memory_order_relaxed) + 1;
    unclaimed_.store(uint64_t{region} << 32 | num_tasks_, std::memory_order_release);
    region_.store(region, std::memory_order_seq_cst);
    if (num_sleepers_.load(std::memory_order_seq_cst) > 0) wake_all(region_);
    work();
    while (const uint32_t open = num_open_.load(std::memory_order_acquire)) await_change(num_open_, open);
    return true;
  }

 private:
  void grow(int64_t num_helpers) {
    while (size_ < num_helpers) {
      std::thread([this, index = size_] { help(index); }).detach();
      ++size_;
    }
  }

  [[noreturn]] void help(int64_t index) {
    for (;;) {
      const uint32_t region = region_.load(std::memory_order_acquire);
      if (index < num_helpers_.load(std::memory_order_relaxed)) work();
      await_change(region_, region);
    }
  }

  // Tasks of whatever region is on, until nobody has to begin any.
  void work() {
    uint64_t unclaimed = unclaimed_.load(std::memory_order_acquire);
    while (static_cast<uint32_t>(unclaimed) > 0) {
      if (!unclaimed_.compare_exchange_weak(unclaimed, unclaimed - 1, std::memory_order_acq_rel)) continue;
      // The region lasts until this task is done.
      task_(body_, num_tasks_ - static_cast<uint32_t>(unclaimed));
      if (num_open_.fetch_sub(1, std::memory_order_seq_cst) == 1 &&
          num_sleepers_.load(std::memory_order_seq_cst) > 0)
        wake_all(num_open_);
      unclaimed = unclaimed_.load(std::memory_order_acquire);
    }
  }

  void await_change(std::atomic<uint32_t>& word, uint32_t seen) {
    using Clock = std::chrono::steady_clock;
    const auto until = Clock::now() + kSpin;
    do {
      for (int i = 0; i < 32; ++i) {
        if (word.load(std::memory_order_acquire) != seen) return;
        relax_core();
      }
    } while (Clock::now() < until);
    num_sleepers_.fetch_add(1, std::memory_order_seq_cst);
    sleep_on(word, seen);
    num_sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }

  std::mutex mutex_;
  int64_t size_ = 0;  // helpers
  // Of the region: what whoever has claimed a task of it may read.
  Task task_;
  const void* body_;
  uint32_t num_tasks_;
  std::atomic<int64_t> num_helpers_{0};
  alignas(128) std::atomic<uint64_t> unclaimed_{0};  // the region's number, and its tasks that nobody has begun
  alignas(128) std::atomic<uint32_t> num_open_{0};   // its tasks that are not done
  alignas(128) std::atomic<uint32_t> region_{0};
  std::atomic<uint32_t> num_sleepers_{0};
};

// Of the process. It is never destroyed: its threads wait in it for as long as the process lives.
Team& team() {
  static Team* const team = [] {
    static char memory[sizeof(Team)] alignas(Team);
    // A forked process has the thread that forked, and no others.
    pthread_atfork(nullptr, nullptr, [] { new (memory) Team; });
    return new (memory) Team;
  }();
  return *team;
}

}  // namespace

void run_tasks(int64_t num_tasks, int64_t num_threads, Task task, const void* body) {
  if (team().run(num_tasks, num_threads, task, body)) return;
  for (int64_t i = 0; i < num_tasks; ++i) task(body, i);
}

}  // namespace headway
