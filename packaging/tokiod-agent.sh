#!/bin/sh
# The agent of a compute node, where its tar was unpacked: the first Python of the system that is new enough runs it.
here=$(dirname "$(dirname "$(readlink -f "$0")")")
for python in ${TOKIOD_AGENT_PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 /usr/libexec/platform-python}; do
    if "$python" -I -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2> /dev/null; then
        # -I: nothing of the current directory, of the user or of the environment is imported.
        exec "$python" -I -c 'import runpy, sys
sys.path.insert(0, sys.argv.pop(1))
runpy.run_module("tokiod.agent", run_name="__main__", alter_sys=True)' "$here/lib" "$@"
    fi
done
echo "tokiod-agent: no Python 3.9 or newer was found; set TOKIOD_AGENT_PYTHON to one" >&2
exit 2
