"""What is reported of an archive without its daemon: status, gaps, heat maps, comparisons with a source."""
