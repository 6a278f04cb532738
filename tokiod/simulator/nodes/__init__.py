"""Compute nodes of a site: their jobs and what they measure, their agents, and what an archive must hold of them."""
