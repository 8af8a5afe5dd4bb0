package sys

import "golang.org/x/sys/unix"

// ResolveCached is RESOLVE_CACHED of openat2(2), which x/sys does not define.
const ResolveCached = 0x20

// FileSystem is a kind of file system: its name in proc_pid_mountinfo(5), and its type in
// statfs(2).
type FileSystem struct {
	Name string
	Type int64
}

// OnThisHost are the file systems whose data is on disks or in memory of this host. The kernel
// knows the state of each file whose name it knows.
var OnThisHost = []FileSystem{{"ext4", unix.EXT4_SUPER_MAGIC}, {"xfs", unix.XFS_SUPER_MAGIC},
	{"btrfs", unix.BTRFS_SUPER_MAGIC}, {"tmpfs", unix.TMPFS_MAGIC}, {"overlay", unix.OVERLAYFS_SUPER_MAGIC},
	{"f2fs", unix.F2FS_SUPER_MAGIC}, {"zfs", 0x2fc12fc1}} // ZFS is not part of the kernel
