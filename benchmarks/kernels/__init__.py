"""Measures the CUDA kernels on the GPU at hand, against what its memory and torch give."""
