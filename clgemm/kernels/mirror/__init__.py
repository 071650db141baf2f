"""Making a result exactly symmetric: one triangle of each matrix is copied to the other."""
