#include "prefill_matrix.h"

template int headway::launch_prefill<64>(const PrefillProblem& problem);
