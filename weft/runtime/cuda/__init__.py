"""Programs on NVIDIA GPUs, by the driver alone: libcuda is found when it is first needed, and nothing else is."""
