// Package lua has the scripts that run in Redis, one file each. The comment at the head of a file
// describes its keys, arguments and result. All scripts use the server's clock, name every key that
// they touch, and set an expiry on every key that they create, except for the fence counters.
// Scripts that share functions begin with their files: common.lua, wake.lua, folder_common.lua.
package lua

import "embed"

// Locks.
var (
	// Acquire acquires locks, all or none.
	Acquire = script("common", "acquire")
	// Release releases locks and notifies the first waiter of each.
	Release = script("wake", "release")
	// Extend sets a new time to live on locks.
	Extend = script("extend")
	// Leave removes a waiter from a lock's queue.
	Leave = script("wake", "leave")
	// Reenter acquires a lock that its owner may acquire again.
	Reenter = script("common", "reenter")
	// ReenterRelease releases one hold of a lock that Reenter has acquired. The last hold notifies
	// the first waiter.
	ReenterRelease = script("wake", "reenter_release")
)

// Locks of folders.
var (
	// FolderAcquire claims paths of a tree, all or none.
	FolderAcquire = script("common", "folder_common", "folder_acquire")
	// FolderExtend sets a new time to live on such claims.
	FolderExtend = script("common", "folder_common", "folder_extend")
	// FolderRelease releases such claims and notifies the waiters.
	FolderRelease = script("common", "folder_common", "folder_release")
)

// The fleet.
var (
	// FleetPurge adds a purge to the log and returns the gateways that have to apply it.
	FleetPurge = script("fleet_purge")
	// FleetSync is the heartbeat of a gateway, which returns the purges and the other members.
	FleetSync = script("fleet_sync")
	// FleetGateways lists the registered gateways.
	FleetGateways = script("fleet_gateways")
	// FleetLeave removes a gateway from that list.
	FleetLeave = script("fleet_leave")
)

//go:embed *.lua
var files embed.FS

// script joins files.
func script(names ...string) (text string) {
	for _, name := range names {
		part, err := files.ReadFile(name + ".lua")
		if err != nil {
			panic("BUG: " + err.Error())
		}
		text += string(part)
	}
	return text
}
