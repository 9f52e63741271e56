// Which of the library's variants this processor runs, and which sources the library was built from.
#include <cstring>

#include "abi.h"

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
#endif
  return 0;
}

// A hash of sources and flags, set by build.py.
HEADWAY_API const char* headway_build_stamp() { return HEADWAY_BUILD_STAMP; }
