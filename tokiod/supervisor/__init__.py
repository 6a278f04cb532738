"""`tokiod run`: start, watch, reload and stop the processes of the daemon; control socket, metrics and health."""
