"""Files of tensors: PyTorch's archives, new and old, and safetensors, read and written without ever
running what is in a file."""
