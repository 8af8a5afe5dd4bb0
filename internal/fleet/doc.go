// Package fleet connects a cache to the other gateways: owners of entries, their bytes, leases, and
// purges. Redis carries members, leases and purges; HTTP/2 with TLS carries entries (peer.go).
//
//	f, err := fleet.New(fleet.Options{Addresses: []string{"redis:6379"}, Advertise: "https://10.0.0.7:8887",
//		Secret: secret})
//	defer f.Close()
//	go f.ServePeers(listener, cache.PeerOpen)
//	f.Start(fleet.Local{Purge: drop}) // from now on this gateway is a member, and purges of others arrive
//
//	peers := f.Rank(key, 3)                // the owner first; "" is this gateway
//	lease, release, err := f.AcquireLease(ctx, key, true) // one in the fleet; *cache.Held names the one that has it
//	defer release()
//
// New connects to nothing: a gateway starts, and serves, while Redis is down.
//
// # Members
//
// A gateway registers once a second, and reads the list of the others. The list is kept while
// Redis is away. Each member has a record that is authenticated by the secret (members.go), and so
// has the holder in the value of a lease: nothing in Redis can name an address that is connected
// to, and nothing in it decides which bytes a client gets.
//
// # Keys
//
// All keys of a fleet are in one slot of a Redis Cluster, and one counter gives every lease and
// every purge its number, its fence. With the prefix p these are the keys. Each has an expiry
// except the counter, and their number does not grow with that of the files:
//
//	p:{0}:fence         counter
//	p:{0}:lock:K        lease of K, a lock of package cachelock, while the entry is fetched
//	p:{0}:purges        log of purges, by fence
//	p:{0}:purges:base   the highest fence that the log no longer holds
//	p:{0}:gateways      names of gateways by the time when they were last seen
//	p:{0}:applied       fence of the last purge that each has applied
//	p:{0}:members       record of each
//	p:{0}:about:NAME    announcement of each gateway; only status pages show it
//	p:{0}:probe         written to see whether Redis has memory again
//
// # Failures of Redis
//
// Whatever is wrong with Redis (away, slow, full, a replica, loading, another password), after a
// few failures every method returns cache.ErrFleetDown at once. One goroutine looks in the
// background whether it serves again; no request pays for that.
//
// # Purges
//
// A purge is an entry in the log. A gateway reads the log after a message, and once a
// second in any case; it purges its caches, invalidates its fills, notes the number beside its
// disk tier, and confirms it. A gateway that was away reads on from the number that it has noted;
// when the log does not reach back that far, it drops everything. A request to a peer carries the
// number of the last purge that the asking gateway has applied, and a peer that is behind applies
// the missing ones before it responds: bytes that were fetched before a purge never pass for newer.
package fleet
