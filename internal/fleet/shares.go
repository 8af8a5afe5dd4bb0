package fleet

import "strconv"

// shareKeys is how many keys Shares ranks: an estimate is off by half a percent or so.
const shareKeys = 4096

// Shares estimates which part of all entries each member owns, from 0 to 1, by its name. It is
// empty for a gateway that has no peers.
func (f *Fleet) Shares() map[string]float64 {
	shares := make(map[string]float64)
	if f.o.Advertise == "" {
		return shares
	}
	_, members := f.members.get()
	for i := range shareKeys {
		for _, owner := range members.Rank(strconv.Itoa(i), 1) {
			shares[owner] += 1. / shareKeys
		}
	}
	return shares
}
