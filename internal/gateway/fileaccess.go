package gateway

import (
	"net/netip"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/httpserver/fileselect"
)

// FileRules replace Rules for selected files. A rule counts if its Set field is true, also when it
// is nil.
type FileRules struct {
	Files       fileselect.Selector
	Rules       Rules // of it Deny, Allow, Referers and RefererFile
	SetDeny     bool
	SetAllow    bool
	SetReferers bool
	SetFile     bool
}

// forFile returns the rules of a file: later sections win.
func (rules *Rules) forFile(id fdfs.FileID) Rules {
	of := *rules
	for i := range rules.ByFile {
		f := &rules.ByFile[i]
		if !f.Files.Match(id.Group, id.PathIndex, id.Ext()) {
			continue
		}
		if f.SetDeny {
			of.Deny = f.Rules.Deny
		}
		if f.SetAllow {
			of.Allow = f.Rules.Allow
		}
		if f.SetReferers {
			of.Referers = f.Rules.Referers
		}
		if f.SetFile {
			of.RefererFile = f.Rules.RefererFile
		}
	}
	return of
}

// rejects reports whether a client is outside of the networks that are served.
func (rules *Rules) rejects(client netip.Addr) bool {
	return rules.Deny.Contains(client) || rules.Allow != nil && !rules.Allow.Contains(client)
}

// admitFile applies the rules that depend on the file, once it is known. done is true if the
// response is set.
func (r *request) admitFile() (done bool, err error) {
	rules := r.h.o.Rules
	if rules == nil || len(rules.ByFile) == 0 {
		return false, nil
	}
	of := rules.forFile(r.id)
	if err := r.checkNetwork(&of); err != nil {
		return false, err
	}
	return r.checkReferer(&of)
}

// checkNetwork applies allow and deny.
func (r *request) checkNetwork(rules *Rules) error {
	if rules.rejects(r.clientAddr()) {
		r.h.o.Metrics.rejectedAccess.WithLabelValues(deniedByAddress).Inc()
		return errAddress
	}
	return nil
}
