"""Products of the dtypes that NumPy multiplies by plain loops: integers, booleans, float16."""
