#include "prefill_matrix.h"

template int headway::launch_prefill<96>(const PrefillProblem& problem);
