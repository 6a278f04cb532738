"""One module per kind of source; the module's name is the `kind` of the configuration."""
