"""The process of `tokiod sink NAME`: it follows the change log, reads the rows from the files, and passes them to a sink."""
