"""Matrix products and factorisations of eager calls, whose sizes and strides are arguments."""
