"""One module per kind of sink: where stored windows go."""
