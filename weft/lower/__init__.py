"""From a fused group of nodes to kernels. Here is what all backends share: groups, stages, signatures, epilogues."""
