// Package lua has the scripts that run in Redis, one file each. The head of a file describes its
// keys, arguments and result. All scripts use the server's clock, name every key that they touch,
// and set an expiry on every key that they create, except for a few counters. Functions that
// several scripts share precede them: common.lua, wake.lua, folder_common.lua.
package lua

import _ "embed" // for the scripts

//go:embed common.lua
var common string

//go:embed wake.lua
var wake string

//go:embed acquire.lua
var acquire string

//go:embed release.lua
var release string

//go:embed leave.lua
var leave string

//go:embed reenter.lua
var reenter string

//go:embed reenter_release.lua
var reenterRelease string

//go:embed folder_common.lua
var folderCommon string

//go:embed folder_acquire.lua
var folderAcquire string

//go:embed folder_extend.lua
var folderExtend string

//go:embed folder_release.lua
var folderRelease string

// Acquire acquires locks, all or none.
var Acquire = common + acquire

// Release releases locks and notifies the first waiter of each.
var Release = wake + release

// Extend sets a new time to live on locks.
//
//go:embed extend.lua
var Extend string

// Leave removes a waiter from a lock's queue.
var Leave = wake + leave

// Reenter acquires a lock that its owner may acquire again.
var Reenter = common + reenter

// ReenterRelease releases one hold of a lock that Reenter has acquired. The last hold notifies the
// first waiter.
var ReenterRelease = wake + reenterRelease

// FolderAcquire claims paths of a tree, all or none.
var FolderAcquire = common + folderCommon + folderAcquire

// FolderExtend sets a new time to live on such claims.
var FolderExtend = common + folderCommon + folderExtend

// FolderRelease releases such claims and notifies the waiters.
var FolderRelease = common + folderCommon + folderRelease

// FleetPurge purges files and returns the gateways that have to apply it.
//
//go:embed fleet_purge.lua
var FleetPurge string

// FleetSync says that a gateway lives, and tells it what was purged and which others live.
//
//go:embed fleet_sync.lua
var FleetSync string

// FleetGateways lists the gateways that are registered.
//
//go:embed fleet_gateways.lua
var FleetGateways string

// FleetLeave takes a gateway out of that list.
//
//go:embed fleet_leave.lua
var FleetLeave string
