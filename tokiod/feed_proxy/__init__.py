"""The feed's process: the only one that meets external clients. It has no archive, no ledger, and no secret but the feed's key."""
