"""Programs as graphs of the core: branches and loops that values decide are operators with subgraphs."""
