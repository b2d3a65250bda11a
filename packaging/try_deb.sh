#!/bin/sh
# Installs the package on a bare Debian 12 below DIR, runs it, and purges it: packaging/try_deb.sh DEB DIR
# Needs root, debootstrap and a mirror of Debian; nothing else is asked, PyPI least of all.
set -eu
deb=$(realpath "$1") root=$2

test -e "$root/etc/debian_version" || debootstrap --variant=minbase bookworm "$root"
cp "$deb" "$root/root/coldstream.deb"
in_root() { chroot "$root" env LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@"; }

in_root apt-get -qq update
in_root apt-get install -qqy --no-install-recommends /root/coldstream.deb >/dev/null
in_root coldstream --version
in_root coldstream agent config --show
in_root sh -c 'su -s /bin/sh coldstream -c "coldstream agent run --once --data-dir /nowhere --committed all --bucket b \
    --table t"' || echo "exit code $?, as it should be: it has no AWS credentials"
test "$(in_root stat -c %U:%G:%a /etc/coldstream/agent.toml)" = root:coldstream:640
in_root apt-get purge -qqy coldstream >/dev/null
for each in etc/coldstream usr/lib/coldstream var/lib/coldstream usr/bin/coldstream; do
    test ! -e "$root/$each" || { echo "left behind: /$each"; exit 1; }
done
if in_root getent passwd coldstream; then echo "left behind: the user"; exit 1; fi
echo "installed, run and purged"
