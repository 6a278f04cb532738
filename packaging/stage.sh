#!/bin/sh
# Lay out what the packages contain: packaging/stage.sh WHEEL DIRECTORY [PYTHON]
# The Python packages, as config/constraints.txt pins them, are bundled in /usr/lib/tokiod, an environment of PYTHON (/usr/bin/python3.11).
set -eu
wheel=$1 root=$2 python=${3:-/usr/bin/python3.11}
lib=/usr/lib/tokiod
rm -rf "$root"
mkdir -p "$root"

"$python" -m venv --without-pip "$root$lib"
pip="${PIP:-$python -m pip}"
$pip --python "$root$lib/bin/python" install --quiet --disable-pip-version-check --no-compile --require-hashes --requirement config/constraints.txt
$pip --python "$root$lib/bin/python" install --quiet --disable-pip-version-check --no-compile --no-deps "$wheel"
ln -sf "$python" "$root$lib/bin/python3"
# Scripts begin with the path of the interpreter where they are built; programs that users of the environment alone need are left out.
find "$root$lib/bin" -type f ! -name tokiod ! -name tokioctl -delete
sed -i "1s|.*|#!$lib/bin/python3|" "$root$lib/bin/tokiod" "$root$lib/bin/tokioctl"
sed -i "/^command = /d" "$root$lib/pyvenv.cfg"
find "$root$lib" -name direct_url.json -delete
"$python" -m compileall -q --invalidation-mode unchecked-hash -s "$root" "$root$lib/lib"

mkdir -p "$root/usr/bin" "$root/usr/share"
ln -s "$lib/bin/tokiod" "$lib/bin/tokioctl" "$root/usr/bin/"
mv "$root$lib/share/man" "$root/usr/share/man"
rm -rf "$root$lib/share"
find "$root/usr/share/man" -type f ! -name 'tokio*' -delete   # of bundled packages
find "$root/usr/share/man" -type d -empty -delete
find "$root/usr/share/man" -name '*.[15]' -exec gzip -9n {} +
for shell in bash:bash-completion/completions/tokioctl zsh:zsh/vendor-completions/_tokioctl fish:fish/vendor_completions.d/tokioctl.fish; do
    file="$root/usr/share/${shell#*:}"
    mkdir -p "$(dirname "$file")"
    "$root$lib/bin/python3" "$root$lib/bin/tokioctl" completion "${shell%%:*}" > "$file"
done

install -d "$root/lib/systemd/system" "$root/usr/lib/sysusers.d" "$root/usr/lib/tmpfiles.d" "$root/etc/tokiod"
for unit in systemd/*.service systemd/*.socket systemd/*.target; do
    [ "$(basename "$unit")" != tokiod-agent.service ] || continue   # of the package of nodes: build-agent.sh
    sed "s|/opt/tokiod/|$lib/|g" "$unit" > "$root/lib/systemd/system/$(basename "$unit")"
done
install -m 0644 systemd/tokiod.sysusers.conf "$root/usr/lib/sysusers.d/tokiod.conf"
install -m 0644 systemd/tokiod.tmpfiles.conf "$root/usr/lib/tmpfiles.d/tokiod.conf"
install -m 0644 config/tokiod.toml "$root/etc/tokiod/tokiod.toml"

doc="$root/usr/share/doc/tokiod"
install -d "$doc"
cp -r README.md CHANGELOG.md config docs "$doc/"
cp -r systemd/dropins "$doc/dropins"
rm -rf "$doc/docs/generate" "$doc/docs/man" "$doc/docs/man5" "$doc/config/__pycache__"
cp LICENSE "$doc/copyright"
find "$root" -type d -exec chmod 0755 {} +
find "$root" -type f ! -perm -u+x -exec chmod 0644 {} +
