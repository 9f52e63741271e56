#include "prefill_matrix.h"

template int headway::launch_prefill<128>(const PrefillProblem& problem);
