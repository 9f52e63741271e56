// Rows of a table, by number.
#include <cstring>

#include "abi.h"
#include "team.h"

namespace headway {

struct EmbeddingProblem {
  int64_t num_threads;
  void* out;  // [num_rows, row_bytes]
  const void* table;
  int64_t table_stride;  // bytes from one row to the next
  Indices numbers;
  int64_t num_rows, row_bytes, table_rows;
};

}  // namespace headway

// Returns 0, or 1 if a number is not one of a row; then nothing was written.
HEADWAY_API int headway_embed(const headway::EmbeddingProblem* problem) {
  using namespace headway;
  for (int64_t t = 0; t < problem->num_rows; ++t)
    if (problem->numbers[t] < 0 || problem->numbers[t] >= problem->table_rows) return 1;
  const int64_t row_bytes = problem->row_bytes;
  parallel_for(problem->num_rows, row_bytes / 4, problem->num_threads, [=](int64_t t) {
    std::memcpy(static_cast<char*>(problem->out) + t * row_bytes,
                static_cast<const char*>(problem->table) + problem->numbers[t] * problem->table_stride, row_bytes);
  });
  return 0;
}
