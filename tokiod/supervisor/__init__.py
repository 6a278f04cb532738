"""`tokiod run`: the processes of the daemon started, watched, reloaded and stopped; control socket, metrics and health."""
