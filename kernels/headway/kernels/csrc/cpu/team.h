// Threads that share the tasks of one parallel region after the other.
//
// A region ends when its tasks are done, not when all threads have come to its end: a thread that the system holds up
// between two tasks delays nobody, because the others go on with what is left.
#pragma once

#include <algorithm>
#include <cstdint>

namespace headway {

using Task = void (*)(const void* body, int64_t task);

// task(body, i) for each i in [0, num_tasks), on this thread and num_threads - 1 others as they get free, begun in order.
// If another thread has the team, on this thread alone.
void run_tasks(int64_t num_tasks, int64_t num_threads, Task task, const void* body);

// body(i) for each i in [0, num_tasks).
template <class Body>
inline void for_each_task(int64_t num_tasks, int64_t num_threads, const Body& body) {
  if (num_threads > 1 && num_tasks > 1)
    return run_tasks(
        num_tasks, num_threads, [](const void* b, int64_t task) { (*static_cast<const Body*>(b))(task); }, &body);
  for (int64_t task = 0; task < num_tasks; ++task) body(task);
}

// Floats touched in about the time that it takes to hand a task over.
constexpr int64_t kRangeFloats = 8192;

// body(i) for each i in [0, n), of which each touches `floats_each`.
template <class Body>
inline void parallel_for(int64_t n, int64_t floats_each, int64_t num_threads, const Body& body) {
  const int64_t num_tasks = std::clamp<int64_t>(n * floats_each / kRangeFloats, 1, std::max<int64_t>(n, 1));
  for_each_task(num_tasks, num_threads, [&](int64_t task) {
    const int64_t end = n * (task + 1) / num_tasks;
    for (int64_t i = n * task / num_tasks; i < end; ++i) body(i);
  });
}

}  // namespace headway
