"""The functions that users call, each a row of `table.py`: a Python function that checks and
promotes its arguments and composes operators of the registry. Methods, in-place and `out=` forms
follow from the row. A folder is a family; `all.py` loads every one. `fusion.py` runs a row that
composes element-wise operators as one; `misuse.py` says what was wrong with a call that failed."""
