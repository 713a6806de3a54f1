"""Loop IR becomes LLVM IR text, and LLVM IR text becomes object code."""
