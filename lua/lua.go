// Package lua has the scripts that run in Redis, one file each. The comment at the head of a file
// describes its keys, arguments and result. All scripts use the server's clock, name every key that
// they touch, and set an expiry on every key that they create, except for the fence counters.
// Scripts that share functions begin with their files: common.lua, wake.lua, folder_common.lua.
package lua

import _ "embed"

// Locks.
var (
	// Acquire acquires locks, all or none.
	Acquire = common + acquire
	// Release releases locks and notifies the first waiter of each.
	Release = wake + release
	// Extend sets a new time to live on locks.
	Extend = extend
	// Leave removes a waiter from a lock's queue.
	Leave = wake + leave
	// Reenter acquires a lock that its owner may acquire again.
	Reenter = common + reenter
	// ReenterRelease releases one hold of a lock that Reenter has acquired. The last hold notifies
	// the first waiter.
	ReenterRelease = wake + reenterRelease
)

// Locks of folders.
var (
	// FolderAcquire claims paths of a tree, all or none.
	FolderAcquire = common + folderCommon + folderAcquire
	// FolderExtend sets a new time to live on such claims.
	FolderExtend = common + folderCommon + folderExtend
	// FolderRelease releases such claims and notifies the waiters.
	FolderRelease = common + folderCommon + folderRelease
)

// The fleet.
var (
	// FleetPurge adds a purge to the log and returns the gateways that have to apply it.
	FleetPurge = fleetPurge
	// FleetSync is the heartbeat of a gateway, which returns the purges and the other members.
	FleetSync = fleetSync
	// FleetGateways lists the registered gateways.
	FleetGateways = fleetGateways
	// FleetLeave removes a gateway from that list.
	FleetLeave = fleetLeave
)

// The files.
var (
	//go:embed acquire.lua
	acquire string
	//go:embed common.lua
	common string
	//go:embed extend.lua
	extend string
	//go:embed fleet_gateways.lua
	fleetGateways string
	//go:embed fleet_leave.lua
	fleetLeave string
	//go:embed fleet_purge.lua
	fleetPurge string
	//go:embed fleet_sync.lua
	fleetSync string
	//go:embed folder_acquire.lua
	folderAcquire string
	//go:embed folder_common.lua
	folderCommon string
	//go:embed folder_extend.lua
	folderExtend string
	//go:embed folder_release.lua
	folderRelease string
	//go:embed leave.lua
	leave string
	//go:embed reenter.lua
	reenter string
	//go:embed reenter_release.lua
	reenterRelease string
	//go:embed release.lua
	release string
	//go:embed wake.lua
	wake string
)
