"""Elements at positions that tensors name: reads, writes, sums, orders, histograms."""
