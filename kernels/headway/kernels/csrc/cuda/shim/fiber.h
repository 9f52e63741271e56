// A stack of its own that can be left and entered again: the threads of an emulated CTA.
#pragma once

#include <cstddef>

namespace headway::shim {

class Fiber {
 public:
  // `entry` runs on the fiber's stack from the first `enter`, and must never return.
  explicit Fiber(void (*entry)());
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // From the caller's stack into the fiber, until it calls `leave`.
  void enter();
  // From the fiber back to who entered it.
  void leave();

 private:
  static void start(void* self);

  void (*entry_)();
  unsigned char* memory_;  // a guard page, then the stack
  void* own_context_ = nullptr;
  void* outer_context_ = nullptr;
  void* own_fake_stack_ = nullptr;  // of the address sanitizer
  void* outer_fake_stack_ = nullptr;
  const void* outer_stack_ = nullptr;
  size_t outer_stack_bytes_ = 0;
};

}  // namespace headway::shim
