#include "prefill_matrix.h"

template int headway::launch_prefill<256>(const PrefillProblem& problem);
