#include "decode_launch.h"

template int headway::launch_decode<64>(const DecodeProblem& problem);
