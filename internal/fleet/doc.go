// Package fleet connects a cache to the other gateways: owners of entries, their bytes, leases, and
// purges. Redis carries members, leases and purges; HTTP/2 with TLS carries entries (peer.go).
//
//	f, err := fleet.New(fleet.Options{Addresses: []string{"redis:6379"}, Advertise: "https://10.0.0.7:8887",
//		Secret: secret})
//	defer f.Close()
//	go f.ServePeers(listener, cache.PeerOpen)
//	f.Start(fleet.Local{Purge: purge}) // from now on this gateway is a member and gets purges of others
//
//	peers := f.Rank(key, 3)                // the owner first; "" is this gateway
//	lease, release, err := f.AcquireLease(ctx, key, true) // one in the fleet; *cache.Held names the holder
//	defer release()
//
// New opens no connection: a gateway starts and serves while Redis is down.
//
// # Members
//
// A gateway registers once a second, and reads the list of the others. The list is kept while
// Redis is unavailable. The record of a member, and the holder in the value of a lease, are
// authenticated by the secret (members.go): a writer of Redis can neither choose an address that
// gateways connect to nor the bytes that a client gets.
//
// # Keys
//
// All keys of a fleet are in one slot of a Redis Cluster, and one counter gives every lease and
// every purge its number, the fence. The keys, with the prefix p, follow. Each except the counter
// has an expiry, and their number does not grow with the number of files:
//
//	p:{0}:fence         counter
//	p:{0}:lock:K        lease of K, a lock of package cachelock, while the entry is fetched
//	p:{0}:queue:K       gateways that wait for the lease of K; p:{0}:living:K has their expiries
//	p:{0}:folder-*      folder locks of package cachelock, while a purge is appended to the log
//	p:{0}:purges        log of purges, by fence
//	p:{0}:purges:base   the highest fence that the log no longer holds
//	p:{0}:gateways      names of gateways by the time of their last heartbeat
//	p:{0}:applied       fence of the last applied purge of each gateway
//	p:{0}:members       record of each gateway; "#joins" and "#began" tell one list from another
//	p:{0}:about:NAME    announcement of a gateway; only status pages show it
//	p:{0}:probe         written to test whether Redis has memory again
//
// # Failures of Redis
//
// After three successive failures of Redis (unreachable, slow), or one error reply (full, a
// replica, loading, another password), every method that needs Redis returns cache.ErrFleetDown at
// once. One goroutine probes Redis in the background, so no request waits for that. A message from
// Redis, such as that of a new subscription, starts a probe at once.
//
// # Purges
//
// A purge is an entry in the log. A gateway reads the log after a message, and at least once a
// second. It purges its caches, invalidates its fills, stores the fence beside its disk tier, and
// confirms the purge. A gateway that was disconnected continues from the fence of its last applied
// purge, and a restarted one from the stored fence; if the log does not reach back that far, it
// purges everything. A request to a peer carries the fence of the last purge that the requesting
// gateway has read. A peer that is behind first applies the missing purges, or rejects the request:
// bytes from before a purge are never served as newer ones.
//
// Purge waits for every gateway that was heard within ten minutes (purgeLimits.forget), has a place
// in a list that Redis has lost meanwhile, or makes the purge. A gateway that has not read the log
// to its end for some seconds asks the source before it uses older metadata (TrustedSince).
package fleet
