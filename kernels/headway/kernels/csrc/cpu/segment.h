// Memory that the ranks of a group on one host share, and how they keep in step in it.
//
// A collective is a row of steps, the same on every rank. In step k a rank writes into its slot of k's parity, publishes
// it, and reads the others' slots once they have published theirs. Who has published step k has read all of step k - 1,
// so a slot may be written in step k + 2 when all have published k + 1: one wait per step, and no barrier.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>

#include "wait.h"

namespace headway {

// Ranks that compute on cores of their own come within this time of each other; a longer wait is slept through.
constexpr std::chrono::microseconds kSpin{50};
// How often a sleeper looks whether the rank that it waits for still lives.
constexpr std::chrono::milliseconds kLifeCheck{50};

// One rank's progress, on cache lines of its own.
struct alignas(128) Flag {
  std::atomic<uint32_t> step;  // the last one published; wraps around
  std::atomic<uint32_t> num_sleepers;
  std::atomic<int32_t> core;  // on which the step was published
};

// Fields as collectives.py packs them. The segment is the flags by rank, then two slots for each rank.
struct Seat {
  char* segment;
  int64_t rank, size, slot_bytes;
  int64_t lock_file;  // of which each living rank r has byte r locked
  int64_t timeout_us;
};

// What is thrown when a rank does not come, and returned across the C boundary; 0 is success.
struct Absence {
  int code;

  static Absence late(int64_t rank) { return {static_cast<int>(1 + rank)}; }
  static Absence dead(int64_t rank) { return {static_cast<int>(-1 - rank)}; }
};

// A rank's view of the segment during one collective.
class Session {
 public:
  explicit Session(const Seat& seat)
      : seat_(seat), flags_(reinterpret_cast<Flag*>(seat.segment)), step_(own().step.load(std::memory_order_relaxed)) {}

  int64_t rank() const { return seat_.rank; }
  int64_t size() const { return seat_.size; }
  int64_t slot_bytes() const { return seat_.slot_bytes; }

  // Begins the next step: this rank's slot, free to be written.
  char* begin() {
    for (int64_t other = 0; other < size(); ++other)
      if (other != rank()) wait(other, step_);
    ++step_;
    return slot(rank());
  }

  // Shows the slot to the others.
  void publish() {
    own().core.store(sched_getcpu(), std::memory_order_relaxed);
    own().step.store(step_, std::memory_order_seq_cst);
    if (own().num_sleepers.load(std::memory_order_seq_cst) > 0) wake_all(own().step);
  }

  // What another rank has published in this step.
  const char* read(int64_t other) {
    wait(other, step_);
    return slot(other);
  }

 private:
  using Clock = std::chrono::steady_clock;

  Flag& own() const { return flags_[seat_.rank]; }

  char* slot(int64_t of) const {
    return seat_.segment + size() * sizeof(Flag) + (2 * of + step_ % 2) * seat_.slot_bytes;
  }

  static bool has_reached(const Flag& flag, uint32_t step) {
    return static_cast<int32_t>(flag.step.load(std::memory_order_acquire) - step) >= 0;
  }

  void wait(int64_t other, uint32_t step) {
    Flag& flag = flags_[other];
    if (has_reached(flag, step) || spin(flag, step)) return;
    const auto deadline = Clock::now() + std::chrono::microseconds(seat_.timeout_us);
    do {
      sleep(flag, step);
      if (has_reached(flag, step)) return;
      if (!is_alive(other)) {
        if (has_reached(flag, step)) return;  // it left after its last step
        throw Absence::dead(other);
      }
    } while (Clock::now() < deadline);
    throw Absence::late(other);
  }

  // Spinning would keep a rank that was last seen on this very core from coming.
  static bool spin(const Flag& flag, uint32_t step) {
    if (flag.core.load(std::memory_order_relaxed) == sched_getcpu()) return false;
    const auto until = Clock::now() + kSpin;
    do {
      for (int i = 0; i < 32; ++i) {
        relax_core();
        if (has_reached(flag, step)) return true;
      }
    } while (Clock::now() < until);
    return false;
  }

  static void sleep(Flag& flag, uint32_t step) {
    flag.num_sleepers.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t seen = flag.step.load(std::memory_order_seq_cst);
    if (static_cast<int32_t>(seen - step) < 0) {
      const timespec timeout{0, std::chrono::nanoseconds(kLifeCheck).count()};
      sleep_on(flag.step, seen, &timeout);
    }
    flag.num_sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }

  // The kernel drops a process's locks when it dies, before anybody has waited for it.
  bool is_alive(int64_t other) const {
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = other;
    lock.l_len = 1;
    return fcntl(static_cast<int>(seat_.lock_file), F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  }

  const Seat& seat_;
  Flag* flags_;
  uint32_t step_;
};

// Runs body(Session&); 0, or the code of the Absence that ended it.
template <class Body>
inline int attempt(const Seat& seat, Body body) {
  try {
    Session session(seat);
    body(session);
    return 0;
  } catch (const Absence& absence) {
    return absence.code;
  }
}

}  // namespace headway
