"""gemmlab: a reproducible experiment pipeline for CUDA matrix multiplication."""

__version__ = "0.1.0"
