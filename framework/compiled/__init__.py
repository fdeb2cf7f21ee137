"""What runs on a CPU as machine code of its own, made by numba (the extra ``cpu``)."""
