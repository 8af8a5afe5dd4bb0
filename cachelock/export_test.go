package cachelock

import "time"

// BePatient makes all clients wait for the confirmation of a subscription for as long as for
// anything else: see redistest.Server.Client.
func BePatient() { subscribeTimeout = time.Minute }
