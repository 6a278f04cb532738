"""Jobs on the OSTs and MDTs of a simulated site, what its servers print as job_stats, and what a job table must hold of it."""
