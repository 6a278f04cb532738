#!/bin/sh
# Build the RPM of a wheel: packaging/build-rpm.sh WHEEL DIRECTORY; prints its path. Needs rpmbuild.
set -eu
wheel=$(realpath "$1") directory=$(realpath "$2")
version=$(basename "$wheel" | cut -d- -f2)
rpmbuild -bb --quiet --define "_topdir $directory/rpm" --define "_rpmdir $directory" --define "_build_id_links none" \
    --define "tokiod_version $version" --define "tokiod_checkout $PWD" --define "tokiod_wheel $wheel" packaging/rpm/tokiod.spec >&2
rm -rf "$directory/rpm"
echo "$directory/$(uname -m)/tokiod-$version-1.$(uname -m).rpm"
