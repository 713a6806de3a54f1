"""A model in parts: where values decide what comes next, one part ends, the values are read, and the next is made."""
