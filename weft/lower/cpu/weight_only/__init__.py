"""Products whose weights have fewer bits than their rows: templates and layout rules of CPUs."""
