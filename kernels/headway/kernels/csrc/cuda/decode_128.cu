#include "decode_launch.h"

template int headway::launch_decode<128>(const DecodeProblem& problem);
