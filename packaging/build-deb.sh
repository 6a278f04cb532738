#!/bin/sh
# Build the Debian package of a wheel: packaging/build-deb.sh WHEEL DIRECTORY; prints its path. Needs dpkg-deb.
set -eu
wheel=$1 directory=$2
version=$(basename "$wheel" | cut -d- -f2)
architecture=$(dpkg --print-architecture)
stage=$directory/deb
sh packaging/stage.sh "$wheel" "$stage"
mkdir "$stage/DEBIAN"
size=$(du -sk "$stage" | cut -f1)
sed "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@SIZE@/$size/" packaging/debian/control > "$stage/DEBIAN/control"
install -m 0644 packaging/debian/conffiles "$stage/DEBIAN/"
install -m 0755 packaging/debian/postinst packaging/debian/prerm packaging/debian/postrm "$stage/DEBIAN/"
dpkg-deb --root-owner-group -Zxz -z3 --build "$stage" "$directory/tokiod_${version}_$architecture.deb" >&2
rm -rf "$stage"
echo "$directory/tokiod_${version}_$architecture.deb"
