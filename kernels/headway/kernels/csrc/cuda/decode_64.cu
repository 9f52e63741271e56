#include "decode_launch.h"

template headway::DecodeKernel headway::matrix_kernel<64>(const DecodeShape& shape);
