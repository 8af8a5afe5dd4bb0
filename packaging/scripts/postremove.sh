#!/bin/sh
# After the files are removed: dpkg calls it with "remove" and, at a purge, "purge"; rpm with 0
# (removal) or 1 (upgrade). A purge removes logs, cache and configuration; rpm has no purge, and
# keeps them. A store, and a cache folder that the configuration named, are never touched.
set -e
case "$1" in
purge)
	rm -rf /var/cache/fastdfs-gateway /var/log/fastdfs-gateway /run/fastdfs-gateway
	rmdir --ignore-fail-on-non-empty /etc/fastdfs-gateway 2>/dev/null || true
	;;
esac
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
