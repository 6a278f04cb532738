"""Seal files, and unseal them."""
