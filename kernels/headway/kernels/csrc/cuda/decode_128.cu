#include "decode_launch.h"

template headway::DecodeKernel headway::matrix_kernel<128>(const DecodeShape& shape);
