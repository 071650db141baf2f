"""Small types that every other package uses: layouts, precisions, configs, plans, cached files."""
