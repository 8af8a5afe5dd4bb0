package gateway

import "crypto/subtle"

// checkToken rejects a request without a valid token if tokens are required. served is true if
// FailFile is the response.
func (r *request) checkToken() (served bool, err error) {
	h := r.h
	if h.o.Tokens == nil {
		if r.trace != nil {
			r.trace.step("token", "not wanted")
		}
		return false, nil
	}
	if h.o.BypassName != "" {
		// The duration of the comparison reveals only the length of the value.
		value := r.ctx.Request.Header.Peek(h.o.BypassName)
		if subtle.ConstantTimeCompare(value, stringBytes(h.o.BypassValue)) == 1 {
			return false, nil
		}
	}
	q := &r.target.params
	err = h.o.Tokens.Check(r.id.Logic, q.token, q.ts, r.now)
	if p := r.target.picked; err != nil && p != nil && p.master.Logic != "" {
		err = h.o.Tokens.Check(p.master.Logic, q.token, q.ts, r.now)
	}
	switch {
	case r.trace != nil:
		r.trace.token(err, q.ts, r.now)
	case err != nil:
		h.o.Metrics.tokenRejected(err)
	}
	switch {
	case err == nil:
		return false, nil
	case h.o.FailFile != nil:
		r.trace.answer("the token_check_fail file")
		r.sendPage(h.o.FailFile.Type, h.o.FailFile.Body)
		return true, nil
	case h.o.FailStatus == errTokenDenied.status:
		return false, errTokenDenied
	}
	return false, errToken
}
