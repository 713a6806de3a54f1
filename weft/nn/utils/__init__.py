"""What is done with modules and their parameters beside running them."""
