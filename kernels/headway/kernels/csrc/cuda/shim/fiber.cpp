#include "fiber.h"

#include <sys/mman.h>

#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
#define HEADWAY_STACK_SWITCH
#else
#include <ucontext.h>
#endif

namespace headway::shim {
namespace {

constexpr size_t kGuardPageBytes = 4096;
constexpr size_t kStackBytes = 256 * 1024;

#if defined(__SANITIZE_ADDRESS__)
void before_switch(void** fake_stack, const void* stack, size_t bytes) {
  __sanitizer_start_switch_fiber(fake_stack, stack, bytes);
}
void after_switch(void* fake_stack, const void** left_stack, size_t* left_bytes) {
  __sanitizer_finish_switch_fiber(fake_stack, left_stack, left_bytes);
}
void forget_stack(void* stack, size_t bytes) { __asan_unpoison_memory_region(stack, bytes); }
#else
void before_switch(void**, const void*, size_t) {}
void after_switch(void*, const void**, size_t*) {}
void forget_stack(void*, size_t) {}
#endif

}  // namespace

#if defined(HEADWAY_STACK_SWITCH)

// Keeps what a call must preserve on the old stack and its pointer in *from, and goes on where `to` stopped. Twenty
// times faster than swapcontext, which asks the operating system for the signal mask at every switch.
extern "C" void headway_switch_stack(void** from, void* to) __attribute__((visibility("hidden")));
extern "C" void headway_start_fiber() __attribute__((visibility("hidden")));
asm(R"(
.text
.hidden headway_switch_stack
.globl headway_switch_stack
.type headway_switch_stack, @function
headway_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size headway_switch_stack, .-headway_switch_stack
.hidden headway_start_fiber
.globl headway_start_fiber
.type headway_start_fiber, @function
headway_start_fiber:
  movq %r12, %rdi
  callq *%rbx
  ud2
.size headway_start_fiber, .-headway_start_fiber
)");

namespace {

void* new_context(void (*start)(void*), void* argument, unsigned char* stack) {
  void** top = reinterpret_cast<void**>(stack + kStackBytes) - 2;  // 16 byte aligned at the call
  *--top = reinterpret_cast<void*>(&headway_start_fiber);
  *--top = nullptr;                            // rbp
  *--top = reinterpret_cast<void*>(start);     // rbx
  *--top = argument;                           // r12
  for (int i = 0; i < 3; ++i) *--top = nullptr;  // r13 to r15
  return top;
}
void delete_context(void*) {}
void switch_context(void** from, void* to) { headway_switch_stack(from, to); }

}  // namespace

#else

namespace {

void* new_context(void (*start)(void*), void* argument, unsigned char* stack) {
  auto* context = new ucontext_t;
  getcontext(context);
  context->uc_stack = {stack, 0, kStackBytes};
  const auto bits = reinterpret_cast<unsigned long long>(argument), entry = reinterpret_cast<unsigned long long>(start);
  constexpr auto trampoline = [](unsigned high, unsigned low, unsigned entry_high, unsigned entry_low) {
    reinterpret_cast<void (*)(void*)>((static_cast<unsigned long long>(entry_high) << 32) | entry_low)(
        reinterpret_cast<void*>((static_cast<unsigned long long>(high) << 32) | low));
  };
  makecontext(context, reinterpret_cast<void (*)()>(+trampoline), 4, static_cast<unsigned>(bits >> 32),
              static_cast<unsigned>(bits), static_cast<unsigned>(entry >> 32), static_cast<unsigned>(entry));
  return context;
}
void delete_context(void* context) { delete static_cast<ucontext_t*>(context); }
void switch_context(void** from, void* to) {
  if (!*from) *from = new ucontext_t;
  swapcontext(static_cast<ucontext_t*>(*from), static_cast<ucontext_t*>(to));
}

}  // namespace

#endif

Fiber::Fiber(void (*entry)()) : entry_(entry) {
  void* memory = mmap(nullptr, kGuardPageBytes + kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<unsigned char*>(memory);
  mprotect(memory_, kGuardPageBytes, PROT_NONE);
  own_context_ = new_context(&Fiber::start, this, memory_ + kGuardPageBytes);
}

Fiber::~Fiber() {
  delete_context(own_context_);
  delete_context(outer_context_);
  forget_stack(memory_ + kGuardPageBytes, kStackBytes);
  munmap(memory_, kGuardPageBytes + kStackBytes);
}

void Fiber::start(void* self) {
  auto* fiber = static_cast<Fiber*>(self);
  after_switch(nullptr, &fiber->outer_stack_, &fiber->outer_stack_bytes_);
  fiber->entry_();
}

void Fiber::enter() {
  before_switch(&outer_fake_stack_, memory_ + kGuardPageBytes, kStackBytes);
  switch_context(&outer_context_, own_context_);
  after_switch(outer_fake_stack_, nullptr, nullptr);
}

void Fiber::leave() {
  before_switch(&own_fake_stack_, outer_stack_, outer_stack_bytes_);
  switch_context(&own_context_, outer_context_);
  after_switch(own_fake_stack_, &outer_stack_, &outer_stack_bytes_);
}

}  // namespace headway::shim
