"""Generate the OpenAPI document of `tokiod web` from its routes."""

from __future__ import annotations

import sys

from tokiod.web.openapi import encoded

if __name__ == "__main__":
    sys.stdout.buffer.write(encoded())
