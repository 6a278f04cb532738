"""The sockets: windows from collectors to the writer, stored cells from the writer to the world."""
