// Package lua has the scripts that run in Redis, one file each. The comment at the head of a file
// describes its keys, arguments and result. All scripts use the server's clock, name every key that
// they touch, and set an expiry on every key that they create, except for the fence counters.
// Scripts that share functions begin with their files: common.lua, wake.lua, folder_common.lua.
package lua

import "embed"

//go:embed *.lua
var files embed.FS

// Locks.
var (
	// Acquire acquires locks, all or none.
	Acquire = join("common", "acquire")
	// Release releases locks and notifies the first waiter of each.
	Release = join("wake", "release")
	// Extend sets a new time to live on locks.
	Extend = join("extend")
	// Leave removes a waiter from a lock's queue.
	Leave = join("wake", "leave")
	// Reenter acquires a lock that its owner may acquire again.
	Reenter = join("common", "reenter")
	// ReenterRelease releases one hold of a lock that Reenter has acquired. The last hold notifies
	// the first waiter.
	ReenterRelease = join("wake", "reenter_release")
)

// Locks of folders.
var (
	// FolderAcquire claims paths of a tree, all or none.
	FolderAcquire = join("common", "folder_common", "folder_acquire")
	// FolderExtend sets a new time to live on such claims.
	FolderExtend = join("common", "folder_common", "folder_extend")
	// FolderRelease releases such claims and notifies the waiters.
	FolderRelease = join("common", "folder_common", "folder_release")
)

// The fleet.
var (
	// FleetPurge adds a purge to the log and returns the gateways that have to apply it.
	FleetPurge = join("fleet_purge")
	// FleetSync is the heartbeat of a gateway, which returns the purges and the other members.
	FleetSync = join("fleet_sync")
	// FleetGateways lists the registered gateways.
	FleetGateways = join("fleet_gateways")
	// FleetLeave removes a gateway from that list.
	FleetLeave = join("fleet_leave")
)

// join returns the named files as one script.
func join(names ...string) (script string) {
	for _, name := range names {
		text, err := files.ReadFile(name + ".lua")
		if err != nil {
			panic("BUG: " + err.Error())
		}
		script += string(text)
	}
	return script
}
