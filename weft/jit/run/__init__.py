"""Running programs: a graph becomes a list of instructions (`code`), which an interpreter runs (`interpreter`)."""
