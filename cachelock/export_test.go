package cachelock

import "time"

// BePatient sets the time-out of subscriptions to that of other requests, a minute: see
// redistest.Server.Client.
func BePatient() { subscribeTimeout = time.Minute }
