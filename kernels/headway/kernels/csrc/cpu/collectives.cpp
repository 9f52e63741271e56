// Collectives between the ranks of one host, through the segment that they share.
#include <algorithm>
#include <cstring>

#include "abi.h"
#include "segment.h"

namespace headway {

// Up to here every rank adds up everything: one trip. Above, each adds up its share, and hands it round.
constexpr int64_t kDirectBytes = 32 * 1024;
constexpr int64_t kMaxRanks = 64;  // as in collectives.py

struct SumProblem {
  Seat seat;
  int64_t dtype;
  void* x;
  int64_t num_elements;
};

struct GatherProblem {
  Seat seat;
  const char* x;
  const int64_t* sizes;  // [seat.size] bytes of each rank's x
  char* const* outs;     // [seat.size], the own one unused; null: this rank takes nothing
  int64_t is_for_all;
};

struct SwapProblem {
  Seat seat;
  const char* const* parts;   // [seat.size] for each rank, as outs
  const int64_t* part_sizes;  // bytes
  char* const* outs;
  const int64_t* out_sizes;
};

inline int64_t num_pieces(int64_t num_bytes, int64_t piece_bytes) { return (num_bytes + piece_bytes - 1) / piece_bytes; }

// The first element of a rank's share of n; whole cache lines, so that no two ranks write to one.
inline int64_t share_start(int64_t n, int64_t rank, int64_t size) {
  constexpr int64_t kLine = 64;
  return std::min(n, (n + size * kLine - 1) / (size * kLine) * kLine * rank);
}

// out = the sum of the ranks' n elements, in the order of the ranks, so that every rank rounds alike.
template <class T>
inline void add_in_order(const T* const* parts, int64_t size, T* out, int64_t n) {
  for_each_vec(n, [=](int64_t i, auto lanes) {
    Vec sum = load(parts[0] + i, lanes);
    for (int64_t rank = 1; rank < size; ++rank) sum += load(parts[rank] + i, lanes);
    store(out + i, sum, lanes);
  });
}

// x = the sum over the ranks of the n elements from `start` on, of which each has published those from `slot_start` on.
template <class T>
inline void add_published(Session& session, T* x, int64_t start, int64_t n) {
  const T* parts[kMaxRanks];
  for (int64_t rank = 0; rank < session.size(); ++rank) {
    const T* piece = rank == session.rank() ? x : reinterpret_cast<const T*>(session.read(rank));
    parts[rank] = piece + start;
  }
  add_in_order(parts, session.size(), x + start, n);
}

template <class T>
inline void sum_directly(Session& session, T* x, int64_t n) {
  std::memcpy(session.begin(), x, n * sizeof(T));
  session.publish();
  add_published(session, x, 0, n);
}

template <class T>
inline void sum_by_shares(Session& session, T* x, int64_t n) {
  const int64_t rank = session.rank(), size = session.size();
  const int64_t start = share_start(n, rank, size), end = share_start(n, rank + 1, size);
  T* summands = reinterpret_cast<T*>(session.begin());
  std::memcpy(summands, x, start * sizeof(T));
  std::memcpy(summands + end, x + end, (n - end) * sizeof(T));
  session.publish();
  add_published(session, x, start, end - start);
  std::memcpy(session.begin(), x + start, (end - start) * sizeof(T));
  session.publish();
  for (int64_t other = 0; other < size; ++other) {
    if (other == rank) continue;
    const int64_t from = share_start(n, other, size), to = share_start(n, other + 1, size);
    std::memcpy(x + from, session.read(other), (to - from) * sizeof(T));
  }
}

}  // namespace headway

// x = the sum of all ranks' x, bit for bit the same on each.
HEADWAY_API int headway_all_reduce(const headway::SumProblem* problem) {
  using namespace headway;
  return attempt(problem->seat, [=](Session& session) {
    with_dtype(problem->dtype, [=, &session](auto type) {
      using T = decltype(type);
      const int64_t piece = session.slot_bytes() / sizeof(T);
      for (int64_t start = 0; start < problem->num_elements; start += piece) {
        T* x = static_cast<T*>(problem->x) + start;
        const int64_t n = std::min(piece, problem->num_elements - start);
        n * static_cast<int64_t>(sizeof(T)) <= kDirectBytes ? sum_directly(session, x, n) : sum_by_shares(session, x, n);
      }
    });
  });
}

// outs[r] = rank r's x, at all ranks or at one, for every r but the own.
HEADWAY_API int headway_gather(const headway::GatherProblem* problem) {
  using namespace headway;
  return attempt(problem->seat, [=](Session& session) {
    const int64_t rank = session.rank(), size = session.size(), piece = session.slot_bytes();
    const int64_t* sizes = problem->sizes;
    const auto left = [=](int64_t of, int64_t start) { return std::clamp(sizes[of] - start, int64_t{0}, piece); };
    const int64_t longest = *std::max_element(sizes, sizes + size);
    for (int64_t start = 0; start < longest; start += piece) {
      char* slot = session.begin();
      if (problem->is_for_all || !problem->outs) std::memcpy(slot, problem->x + start, left(rank, start));
      session.publish();
      for (int64_t other = 0; problem->outs && other < size; ++other)
        if (other != rank && left(other, start) > 0)
          std::memcpy(problem->outs[other] + start, session.read(other), left(other, start));
    }
  });
}

// outs[r] = rank r's part for this rank, for every r but the own. A slot begins with the number of steps that its rank
// needs, which no other rank can know, and has a lane for each rank.
HEADWAY_API int headway_all_to_all(const headway::SwapProblem* problem) {
  using namespace headway;
  return attempt(problem->seat, [=](Session& session) {
    constexpr int64_t kHead = 64;
    const int64_t rank = session.rank(), size = session.size();
    const int64_t lane = (session.slot_bytes() - kHead) / size;
    const auto left = [=](int64_t num_bytes, int64_t start) { return std::clamp(num_bytes - start, int64_t{0}, lane); };
    int64_t num_steps = 1;
    for (int64_t other = 0; other < size; ++other)
      if (other != rank) num_steps = std::max(num_steps, num_pieces(problem->part_sizes[other], lane));
    for (int64_t step = 0; step < num_steps; ++step) {
      const int64_t start = step * lane;
      char* slot = session.begin();
      std::memcpy(slot, &num_steps, sizeof num_steps);
      for (int64_t other = 0; other < size; ++other)
        if (const int64_t n = left(problem->part_sizes[other], start); other != rank && n > 0)
          std::memcpy(slot + kHead + other * lane, problem->parts[other] + start, n);
      session.publish();
      for (int64_t other = 0; other < size; ++other) {
        if (other == rank) continue;
        const char* theirs = session.read(other);
        int64_t their_steps;
        std::memcpy(&their_steps, theirs, sizeof their_steps);
        num_steps = std::max(num_steps, their_steps);
        if (const int64_t n = left(problem->out_sizes[other], start); n > 0)
          std::memcpy(problem->outs[other] + start, theirs + kHead + rank * lane, n);
      }
    }
  });
}
