"""Nests of loops whose sizes may be arguments: stages, element-wise operators, copies, gathers, updates of lists."""
