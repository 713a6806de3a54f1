"""What operators of programs do: with numbers, texts and containers (`values`), and with tensors (`functions`)."""
