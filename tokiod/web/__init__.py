"""`tokiod web`: a read-only HTTP server of what the archive holds, the API of the live page."""
