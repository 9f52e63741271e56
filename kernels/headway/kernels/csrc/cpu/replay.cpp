// Kernels one after the other, without the caller's interpreter between them.
#include <chrono>

#include "abi.h"

namespace headway {

struct Launch {
  int (*kernel)(const void* operands);
  const void* operands;
  int64_t elapsed_ns;  // is added to, where the replay is timed
};

struct ReplayProblem {
  Launch* launches;
  int64_t num_launches, is_timed;
};

}  // namespace headway

// Returns 0, or where a kernel found a fault 2^32 times the launch's number, from 1, plus the fault; those behind it
// have not run.
HEADWAY_API int64_t headway_replay(const headway::ReplayProblem* problem) {
  using Clock = std::chrono::steady_clock;
  auto started = problem->is_timed ? Clock::now() : Clock::time_point();
  for (int64_t i = 0; i < problem->num_launches; ++i) {
    headway::Launch& launch = problem->launches[i];
    if (const int64_t fault = launch.kernel(launch.operands)) return (i + 1) << 32 | fault;
    if (!problem->is_timed) continue;
    const auto ended = Clock::now();
    launch.elapsed_ns += std::chrono::nanoseconds(ended - started).count();
    started = ended;
  }
  return 0;
}
