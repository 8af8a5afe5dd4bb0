#!/bin/sh
# Before the files are removed: dpkg calls it with "remove" or "upgrade", rpm with 0 (removal) or 1.
set -e
case "$1" in
remove | 0) ;;
*) exit 0 ;; # at an upgrade the gateway goes on
esac
if command -v systemctl >/dev/null; then
	for unit in fastdfs-gateway.socket fastdfs-gateway.service; do
		systemctl --no-reload disable $unit 2>/dev/null || true
		[ ! -d /run/systemd/system ] || systemctl stop $unit || true
	done
fi
