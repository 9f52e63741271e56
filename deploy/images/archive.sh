#!/bin/sh
# Builds an image from its Dockerfile without Docker: archive.sh NAME DOCKERFILE CONTEXT [ARCHIVE [ARGUMENT...]]
# The archive is as `docker save` writes it; layers stay in HEADWAY_IMAGE_STORE. Needs buildah and root; pulls nothing.
set -eu
name=$1 dockerfile=$2 context=$3 archive=${4:-}
shift 3
[ $# -eq 0 ] || shift
mkdir -p "$HEADWAY_IMAGE_STORE"
store=$(cd "$HEADWAY_IMAGE_STORE" && pwd)
# What the machine trusts, and how it reaches the package index, is lent to the build and is no part of the image.
printf 'native-tls = true\n' > "$store/uv.toml"
set -- "$@" --volume "$store/uv.toml:/etc/uv/uv.toml:ro"
for lent in /etc/ssl/certs/ca-certificates.crt /etc/pip.conf; do
  [ ! -f "$lent" ] || set -- "$@" --volume "$lent:$lent:ro"
done
# The store's mounts end with the namespace.
exec unshare --mount sh -euc '
  buildah() { command buildah --root "$store/root" --runroot "$store/run" --storage-driver overlay "$@"; }
  store=$1 name=$2 dockerfile=$3 context=$4 archive=$5
  shift 5
  buildah build --quiet --layers --isolation chroot --pull-never "$@" --file "$dockerfile" --tag "$name" "$context"
  if [ -n "$archive" ]; then
    rm -f "$archive.new"
    buildah push --quiet "$name" "docker-archive:$archive.new:$name"
    mv "$archive.new" "$archive"
  fi
' sh "$store" "$name" "$dockerfile" "$context" "$archive" "$@"
