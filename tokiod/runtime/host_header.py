"""The Host header of a request."""

from __future__ import annotations

import ipaddress
import re
from contextlib import suppress


# A page of another site can have its own name resolve to this address, and then read the answers in a browser on this machine. The
# browser sends that name. An IP address as Host shows that no name was resolved.
def resolved_name(host: str) -> str:
    """Return the name of a Host header in lower case, without the port; "" for localhost and an IP address."""
    name = host.rpartition(":")[0] if re.search(r":\d*$", host) and not host.endswith("]") else host
    with suppress(ValueError):
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        return ""
    return "" if name.lower() == "localhost" else name.lower()
