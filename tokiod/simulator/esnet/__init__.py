"""A simulated SNMP service of ESnet."""
