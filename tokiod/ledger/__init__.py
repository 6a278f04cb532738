"""The ledger, an SQLite database: which windows of each source are stored, and why others are not. No other package has SQL on it."""
