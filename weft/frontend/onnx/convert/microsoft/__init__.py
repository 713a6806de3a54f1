"""Converters of com.microsoft: operators that ONNX Runtime's optimiser and quantiser write into files, by subject."""
