"""Python functions as native programs: a function is run once on stand-ins, and what it did runs from then on."""
