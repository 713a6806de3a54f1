"""What training loops need beside tensors and modules."""
