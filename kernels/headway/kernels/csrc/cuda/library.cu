// What the library says of itself and of its last failure.
#include "device.h"

#ifndef HEADWAY_BUILD_STAMP
#define HEADWAY_BUILD_STAMP "none"
#endif

// The sources and flags that the library was built from: a string that its file contains.
HEADWAY_API const char* headway_build_stamp() { return HEADWAY_BUILD_STAMP; }

#if defined(__CUDACC__)

HEADWAY_API const char* headway_error_text(int code) { return cudaGetErrorString(static_cast<cudaError_t>(code)); }

#else

HEADWAY_API const char* headway_error_text(int) { return headway::shim::last_error(); }

HEADWAY_API void headway_set_schedule(uint64_t schedule) { headway::shim::set_schedule(schedule); }

#endif
