"""Reports about an archive that need no daemon: status, gaps, heat maps, comparisons with a source."""
