// Paged attention: the prefill chunks and the decodes of one step together.
#include <cstdlib>
#include <memory>

#include "abi.h"
#include "attention_problem.h"
#include "attention_tile.h"
#include "team.h"

namespace headway {
namespace {

// Multiply-adds below which a second thread costs more than it saves.
constexpr int64_t kParallelWork = 1 << 18;

// A buffer that the thread keeps between calls.
float* thread_scratch(int64_t num_floats) {
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  thread_local std::unique_ptr<float, Free> buffer;
  thread_local int64_t capacity = 0;
  if (num_floats > capacity) {
    capacity = (num_floats + 15) / 16 * 16;
    buffer.reset(static_cast<float*>(std::aligned_alloc(64, capacity * sizeof(float))));
  }
  return buffer.get();
}

template <class Activation, class Cache>
void run_attention(const AttentionProblem& problem) {
  using Tiles = TileAttention<Activation, Cache>;
  const int64_t floats_per_row = Softmax::floats_per_row(problem.head_dim);
  const AttentionPlan plan = plan_attention(problem, floats_per_row);
  const std::unique_ptr<float[]> workspace(new float[plan.workspace_floats]);
  const int64_t num_chunks = plan.chunk_ends.size(), num_splits = plan.splits.size(), num_blanks = plan.blanks.size();
  const int64_t num_threads = plan.cost * problem.head_dim >= kParallelWork ? problem.num_threads : 1;
  const auto thread_tiles = [&] {
    return Tiles(problem, plan.sharers.data(), thread_scratch(Tiles::scratch_floats(problem)), workspace.get());
  };
  for_each_task(plan.shared_tiles.size(), num_threads, [&](int64_t task) {
    thread_tiles().run(&plan.shared_tiles[task], &plan.shared_tiles[task] + 1);
  });
  for_each_task(num_chunks + num_blanks, num_threads, [&](int64_t task) {
    Tiles tiles = thread_tiles();
    if (task >= num_chunks) return tiles.finish_blank(plan.blanks[task - num_chunks]);
    const int64_t begin = task == 0 ? 0 : plan.chunk_ends[task - 1];
    tiles.run(&plan.tiles[begin], plan.tiles.data() + plan.chunk_ends[task]);
  });
  for_each_task(num_splits, num_threads, [&](int64_t task) {
    const auto& [tile, partial, num_partials] = plan.splits[task];
    float* memory = workspace.get() + partial;
    Softmax whole(memory, tile.num_rows, problem.head_dim);
    for (int64_t p = 1; p < num_partials; ++p)
      whole.merge(Softmax(memory + p * tile.num_rows * floats_per_row, tile.num_rows, problem.head_dim),
                  tile.num_rows);
    thread_tiles().finish(tile, whole);
  });
}

}  // namespace
}  // namespace headway

// Returns 0, or the code of check_attention; then nothing was written.
HEADWAY_API int headway_paged_attention(const headway::AttentionProblem* problem) {
  using namespace headway;
  if (const int fault = check_attention(*problem)) return fault;
  with_dtype(problem->activation_dtype, [=](auto activation) {
    with_dtype(problem->cache_dtype,
               [=](auto cache) { run_attention<decltype(activation), decltype(cache)>(*problem); });
  });
  return 0;
}
