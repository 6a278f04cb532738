"""Sources that other hosts collect: the daemon asks, and their hosts answer.

On the writer's host, in the collectors' process:
links         the socket of the other hosts         remote_host   one of them: its connection, and what it is asked
remote        a collector whose windows another host collects

On the other hosts:
host_process  the connection to the writer's host   answering     the collectors, and their answers
"""
