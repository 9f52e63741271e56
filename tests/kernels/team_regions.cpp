// Parallel regions of many sizes from several threads at once: each task must be done once, by the end of its region.
// Exits with 0, or with 1 and the region that failed. With "fork" as its second argument, in a forked process too.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "team.h"

namespace {

constexpr int64_t kSizes[] = {0, 1, 2, 3, 17, 100, 3000}, kThreads[] = {1, 2, 3, 5};
constexpr int kNumCallers = 3, kNumRegions = 300;

bool run_regions(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int> counts;  // plain numbers: a task that ran twice, or after its region, is a data race
  for (int region = 0; region < kNumRegions; ++region) {
    const int64_t num_tasks = kSizes[random() % std::size(kSizes)], num_threads = kThreads[random() % std::size(kThreads)];
    counts.assign(num_tasks, 0);
    headway::for_each_task(num_tasks, num_threads, [&](int64_t task) { ++counts[task]; });
    for (const int count : counts)
      if (count != 1) {
        std::printf("seed %u, region %d: a task of %ld ran %d times\n", seed, region, static_cast<long>(num_tasks), count);
        return false;
      }
    if (random() % 16 == 0) usleep(200);  // long enough that the team falls asleep
  }
  return true;
}

bool run_in_fork(unsigned seed) {
  const pid_t child = fork();
  if (child == 0) _exit(run_regions(seed) ? 0 : 1);
  int status = 0;
  return waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

int main(int, char** arguments) {
  const unsigned seed = std::atoi(arguments[1]);
  bool is_right = run_regions(seed);
  std::atomic<bool> are_right{true};
  std::vector<std::thread> callers;
  for (unsigned caller = 1; caller <= kNumCallers; ++caller)
    callers.emplace_back([&, caller] {
      if (!run_regions(seed + caller)) are_right = false;
    });
  for (std::thread& caller : callers) caller.join();
  if (arguments[2]) is_right = run_in_fork(seed) && is_right;
  return is_right && are_right ? 0 : 1;
}
