"""The sockets: windows from the collectors to the writer, stored cells from the writer to subscribers."""
