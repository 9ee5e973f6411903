#!/usr/bin/env bash
# Make a base image out of Debian's packages, where no registry can be reached: BASE of docker/Dockerfile, and that of the
# stand-ins for Redis, PostgreSQL and Prometheus (docker/local/Dockerfile). Needs root and debootstrap; one minute, 1.1 GB.
#
# Usage: docker/local/base.sh [NAME:TAG]
set -euo pipefail

readonly NAME=${1:-sluicegate-base:bookworm}
readonly RELEASE=bookworm
readonly PACKAGES=(openjdk-17-jre-headless postgresql prometheus redis-server)

# Where this machine gets its own packages from.
mirror=$({
  sed -n 's/^URIs: *\([^ ]*\).*/\1/p' /etc/apt/sources.list.d/*.sources || true
  sed -n 's/^deb \(\[[^]]*\] \)\?\([^ ]*\).*/\2/p' /etc/apt/sources.list /etc/apt/sources.list.d/*.list || true
} 2>/dev/null | grep -E '/debian/?$' | head -n 1)
root=$(mktemp -d)
trap 'umount "$root/proc" 2>/dev/null || true; rm -rf "$root"' EXIT

debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv "$RELEASE" "$root" "$mirror" >&2
# Packages may try to start their services.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod +x "$root/usr/sbin/policy-rc.d"
# Java's package asks /proc.
mount --bind /proc "$root/proc"
DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get install -y -qq --no-install-recommends "${PACKAGES[@]}" >&2
umount "$root/proc"
rm -rf "$root"/usr/sbin/policy-rc.d "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*
tar -C "$root" -c . | docker import --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' - "$NAME" >&2
echo "$NAME"
