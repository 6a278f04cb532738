"""The ledger, an SQLite database: which windows of each source are stored, and why others are not. The only SQL on it."""
