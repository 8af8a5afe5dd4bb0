// Package lua holds the scripts that run inside Redis, one file a script. Each file says at its head what its keys and arguments
// are and what it answers. All of them take time from the server, name every key that they touch, and give each key that they
// make an expiry, but for a handful of counters. What several scripts share stands in front of them: wake.lua, folder_common.lua.
package lua

import _ "embed" // for the scripts

// Acquire takes locks, all or none.
//
//go:embed acquire.lua
var Acquire string

//go:embed release.lua
var release string

// Extend gives locks a new time to live.
//
//go:embed extend.lua
var Extend string

// Leave takes somebody who no longer waits out of a lock's queue.
//
//go:embed leave.lua
var Leave string

// Commit writes a value unless a later holder of the lock has written already.
//
//go:embed commit.lua
var Commit string

// Reenter takes a lock that its owner may take again.
//
//go:embed reenter.lua
var Reenter string

//go:embed reenter_release.lua
var reenterRelease string

//go:embed wake.lua
var wake string

// Release gives locks back and tells the first that waits for each, by wake.lua.
var Release = wake + release

// ReenterRelease gives back one hold of a lock that Reenter has taken, and tells the first that waits after the last, by wake.lua.
var ReenterRelease = wake + reenterRelease

//go:embed folder_common.lua
var folderCommon string

//go:embed folder_acquire.lua
var folderAcquire string

//go:embed folder_extend.lua
var folderExtend string

//go:embed folder_release.lua
var folderRelease string

// FolderAcquire claims paths of a tree, all or none. The scripts of the folder lock share what folder_common.lua has.
var FolderAcquire = folderCommon + folderAcquire

// FolderExtend gives such claims a new time to live.
var FolderExtend = folderCommon + folderExtend

// FolderRelease gives such claims back and tells those that wait.
var FolderRelease = folderCommon + folderRelease

// FleetPublish writes an entry on behalf of the holder of a lease.
//
//go:embed fleet_publish.lua
var FleetPublish string

// FleetRead reads an entry that was not purged since.
//
//go:embed fleet_read.lua
var FleetRead string

// FleetDrop deletes an entry if it is still the one that somebody wrote.
//
//go:embed fleet_drop.lua
var FleetDrop string

// FleetPurge purges files and says which gateways have to obey.
//
//go:embed fleet_purge.lua
var FleetPurge string

// FleetSync says that a gateway lives and tells it what was purged.
//
//go:embed fleet_sync.lua
var FleetSync string
