"""A simulated Lustre client with its lfs and lctl commands."""
