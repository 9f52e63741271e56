#include "decode_launch.h"

template headway::DecodeKernel headway::matrix_kernel<256>(const DecodeShape& shape);
