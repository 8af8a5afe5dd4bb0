// Package attack attacks the built gateway like an outsider: it sends bytes on raw sockets, most of
// them not HTTP.
//
//	make attack                       # 10 minutes
//	make attack ATTACK=1h SEED=7      # longer, and the bytes of another seed
//	go test ./tests/all/attack            # the short version, which is part of make test-all
//
// TestFraming sends the same bytes to the gateway and to Debian's nginx and haproxy, and compares
// where each of them sees requests begin. TestMutations and TestRemoteMutations send mutated
// requests and watch responses, memory, goroutines and descriptors. Every run prints its seed;
// -attack.seed repeats it.
package attack
