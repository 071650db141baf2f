"""Small products: one launch, operands of any strides."""
