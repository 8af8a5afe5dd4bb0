package backoff

import "time"

// Record counts the replies and the errors of one server, for its status. It is not safe for
// concurrent use.
type Record struct {
	Replies int           // number of replies
	Latency time.Duration // mean over the replies, see Smooth; 0 = there was none
	// LastError is the newest failure or wrong reply, at LastErrorAt; nil = there was none.
	LastError   error
	LastErrorAt time.Time
}

// Replied records a reply and its latency.
func (r *Record) Replied(latency time.Duration) {
	if r.Replies++; r.Replies == 1 {
		r.Latency = latency
	}
	r.Latency = Smooth(r.Latency, latency)
}

// Failed records an error.
func (r *Record) Failed(err error, now time.Time) { r.LastError, r.LastErrorAt = err, now }

// smoothing is the weight of the newest duration in a mean.
const smoothing = 0.2

// Smooth returns the exponentially weighted mean of durations after a new one.
func Smooth(mean, newest time.Duration) time.Duration {
	return mean + time.Duration(smoothing*float64(newest-mean))
}
