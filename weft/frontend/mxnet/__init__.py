"""MXNet: symbol files and parameter files are read into a Symbol and its parameters.

MXNet itself is never imported. `get_op` and the table in `registry` are for converters that are written elsewhere.
"""
