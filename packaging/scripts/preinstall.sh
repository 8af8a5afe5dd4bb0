#!/bin/sh
# Before the files are unpacked: some of them belong to the group. sysusers.d names the same account.
set -e
getent group fastdfs-gateway >/dev/null || groupadd --system fastdfs-gateway
getent passwd fastdfs-gateway >/dev/null || useradd --system --gid fastdfs-gateway --no-create-home \
	--home-dir /var/cache/fastdfs-gateway --shell /usr/sbin/nologin \
	--comment "Download gateway for FastDFS" fastdfs-gateway
