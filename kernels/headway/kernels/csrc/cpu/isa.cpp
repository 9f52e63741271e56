// Which of the library's variants this processor runs, and which sources the library was built from.
#include <cstring>

#include "abi.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

// Whether the processor has AMX with tiles of bfloat16 and bytes, and the system lets this process use it: it has to be
// asked, since every thread's registers are kept in 8 KiB more from then on.
bool may_use_matrix_unit() {
  constexpr unsigned kBfloat16 = 1u << 22, kTiles = 1u << 24, kBytes = 1u << 25;
  constexpr long kAskForPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (~d & (kBfloat16 | kTiles | kBytes))) return false;
  return syscall(SYS_arch_prctl, kAskForPermission, kTileData) == 0;
}

}  // namespace
#else
namespace {
bool may_use_matrix_unit() { return false; }
}  // namespace
#endif

// True if the processor has every instruction that the variant's compiler flags (build.py) allow.
HEADWAY_API int headway_supports_isa(const char* isa) {
  if (std::strcmp(isa, "portable") == 0) return 1;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (std::strcmp(isa, "avx2") == 0)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (std::strcmp(isa, "avx512") == 0)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (std::strcmp(isa, "avx512_bf16") == 0)
    return headway_supports_isa("avx512") && __builtin_cpu_supports("avx512bf16") &&
           __builtin_cpu_supports("avx512vnni");
  if (std::strcmp(isa, "amx") == 0) return headway_supports_isa("avx512_bf16") && may_use_matrix_unit();
#endif
  return 0;
}

// A hash of sources and flags, set by build.py.
HEADWAY_API const char* headway_build_stamp() { return HEADWAY_BUILD_STAMP; }
