#!/bin/sh
# After the files are in place. dpkg calls it with "configure" and the version before, which is
# empty at the first installation; rpm with 1 at the first installation and 2 at an upgrade.
set -e
service=fastdfs-gateway.service
case "$1${2:+ upgrade}" in
configure | 1) upgrade=no ;;
configure* | 2) upgrade=yes ;;
*) exit 0 ;; # dpkg takes back a step that failed
esac

install -d -o fastdfs-gateway -g fastdfs-gateway -m 0700 /var/cache/fastdfs-gateway
install -d -o fastdfs-gateway -g fastdfs-gateway -m 0750 /var/log/fastdfs-gateway
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
	# A running gateway hands its sockets over to the new program.
	if [ $upgrade = yes ] && systemctl --quiet is-active $service; then
		systemctl kill --signal=USR2 --kill-who=main $service || true
	fi
fi
if [ $upgrade = no ]; then
	cat <<-END
	fastdfs-gateway is installed and not started. Its configuration is
	/etc/fastdfs-gateway/gateway.conf, which reads /etc/fdfs/mod_fastdfs.conf:

	    gateway check -c /etc/fastdfs-gateway/gateway.conf
	    systemctl enable --now fastdfs-gateway
	END
fi
