"""How a window crosses from one process to another: one encoding, cut into parts, and one dialogue."""
