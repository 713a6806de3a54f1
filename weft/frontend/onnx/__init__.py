"""ONNX: models are read into, and written from, a Symbol and its parameters."""
