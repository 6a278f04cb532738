#!/bin/sh
# Build the agent of compute nodes alone: packaging/build-agent.sh DIRECTORY; prints the paths of a relocatable tar and a Debian package.
# It holds tokiod.agent and pyzmq, as config/constraints.txt pins it, for Python 3.9 to 3.14 with glibc 2.28 or newer (2.17 for Python 3.9).
# A node needs no compiler and fetches nothing. Needs pip, and dpkg-deb for the package.
set -eu
directory=$1
python=${PYTHON:-python3}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml | head -n 1)
machine=$(uname -m)
work=$directory/agent
root=$work/tokiod-agent
rm -rf "$work"
mkdir -p "$root/bin" "$root/lib" "$work/wheels"

# One wheel for each Python: they differ in one compiled file, whose name says for which.
awk '/^pyzmq==/ { on = 1 } on { print } on && !/\\$/ { exit }' config/constraints.txt > "$work/pyzmq.txt"
for wanted in 3.12 3.11 3.10 3.9; do
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
        --python-version "$wanted" --platform "manylinux_2_28_$machine" --platform "manylinux_2_26_$machine" \
        --platform "manylinux2014_$machine" --dest "$work/wheels" --requirement "$work/pyzmq.txt"
done
for wheel in "$work"/wheels/*.whl; do
    "$python" -m zipfile -e "$wheel" "$work/unpacked"
    for source in $(cd "$work/unpacked" && find zmq -name '*.py'); do
        if [ -e "$root/lib/$source" ] && ! cmp -s "$work/unpacked/$source" "$root/lib/$source"; then
            echo "$wheel: $source differs from that of the other wheels" >&2
            exit 1
        fi
    done
    cp -r "$work/unpacked/zmq" "$work/unpacked/pyzmq.libs" "$root/lib/"
    rm -rf "$work/unpacked"
done
find "$root/lib/zmq" \( -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' -o -name '*.h' -o -name '*.pyi' \) -delete
rm -rf "$root/lib/zmq/tests" "$root/lib/zmq/green" "$root/lib/zmq/log"

mkdir -p "$root/lib/tokiod"
cp tokiod/__init__.py "$root/lib/tokiod/"
cp -r tokiod/agent "$root/lib/tokiod/agent"
find "$root/lib" -name __pycache__ -prune -exec rm -rf {} +
install -m 0755 packaging/tokiod-agent.sh "$root/bin/tokiod-agent"
install -m 0644 config/agent/agent.toml LICENSE docs/nodes.md docs/sensors.md systemd/tokiod-agent.service "$root/"
mkdir "$root/dropins"
install -m 0644 systemd/dropins/agent-*.conf "$root/dropins/"
find "$root" -type d -exec chmod 0755 {} +
find "$root/lib" -type f -exec chmod 0644 {} +

tar="$directory/tokiod-agent-$version-$machine.tar.gz"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -czf "$tar" tokiod-agent
echo "$tar"

if command -v dpkg-deb > /dev/null; then
    stage=$work/deb
    mkdir -p "$stage/opt" "$stage/lib/systemd/system" "$stage/etc/tokiod-agent" "$stage/DEBIAN"
    cp -r "$root" "$stage/opt/tokiod-agent"
    cp systemd/tokiod-agent.service "$stage/lib/systemd/system/"
    size=$(du -sk "$stage" | cut -f1)
    architecture=$(dpkg --print-architecture)
    sed "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@SIZE@/$size/" packaging/debian-agent/control > "$stage/DEBIAN/control"
    install -m 0755 packaging/debian-agent/postinst packaging/debian-agent/prerm "$stage/DEBIAN/"
    dpkg-deb --root-owner-group -Zxz -z3 --build "$stage" "$directory/tokiod-agent_${version}_$architecture.deb" >&2
    echo "$directory/tokiod-agent_${version}_$architecture.deb"
fi
rm -rf "$work"
