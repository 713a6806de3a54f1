"""Functions and modules written as files of other formats."""
