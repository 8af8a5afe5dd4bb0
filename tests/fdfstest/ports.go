package fdfstest

import (
	"fmt"
	"net/netip"
)

// commonPort hands out the addresses 127.0.0.11, .12 and so on, all with one port.
type commonPort struct {
	free []*reservation
}

// newCommonPort reserves an address for each storage.
func newCommonPort(o Options) (*commonPort, error) {
	need := 0
	for _, g := range o.Groups {
		need += len(g.list())
	}
	if need > lastHost-firstHost+1 {
		return nil, fmt.Errorf("%d storages, at most %d can be given addresses", need, lastHost-firstHost+1)
	}
	var err error
	for range portTries {
		p := &commonPort{}
		if err = p.reserve(need); err == nil {
			return p, nil
		}
		p.release()
	}
	return nil, fmt.Errorf("cannot find a common port for %d storages: %w", need, err)
}

// reserve reserves n addresses with one port, which is free on the first.
func (p *commonPort) reserve(n int) error {
	port := uint16(0)
	for i := range n {
		host := netip.AddrFrom4([4]byte{127, 0, 0, byte(firstHost + i)})
		r, err := reserve(netip.AddrPortFrom(host, port))
		if err != nil {
			return err
		}
		port = r.addr.Port()
		p.free = append(p.free, r)
	}
	return nil
}

// take returns the next of the reserved addresses.
func (p *commonPort) take() *reservation {
	r := p.free[0]
	p.free = p.free[1:]
	return r
}

// release releases the addresses that were not taken.
func (p *commonPort) release() {
	for _, r := range p.free {
		r.close()
	}
	p.free = nil
}
