#include "decode_launch.h"

template int headway::launch_decode<256>(const DecodeProblem& problem);
