"""The hub's process: the agents of compute nodes connect to it. It has no archive and no ledger.

process   the sockets, the limits, the loop         classes   which key belongs to which class, and its names
hub       what is asked of which node, and when     nodes     the nodes and their sessions
messages  the wire's messages, decoded              to_window  what all nodes sent of a window, as its data
                                                    to_rows    states of jobs as rows of the job table
"""
