"""What every room stands on: dtypes, shapes, layouts, arrays, devices, targets, errors, config."""
