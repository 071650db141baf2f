"""Pure and small: layouts, precisions, configs, plans, and where files are kept."""
