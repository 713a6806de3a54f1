"""Rules by which operators work on a whole batch at once, by families of operators."""
