"""The configuration: TOML to checked structs, with the line of every error."""
