// Waiting for another thread: first awake, then asleep.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>

namespace headway {

static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4, "a futex");

inline void relax_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Sleeps unless the word has another value than the one seen; may return early. Threads of other processes see it too.
inline void sleep_on(std::atomic<uint32_t>& word, uint32_t seen, const timespec* timeout = nullptr) {
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, timeout, nullptr, 0);
}

inline void wake_all(std::atomic<uint32_t>& word) { syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

}  // namespace headway
