package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/valyala/fasthttp"
)

// PeerOptions say how other gateways are answered, which ask for segments of files that this one has or is fetching.
type PeerOptions struct {
	Path   string // of their requests
	Header string // with their signature
	// Accept checks a request, given path and query as they were received and the value of Header. What it returns writes the
	// body: the last bytes tell whether it is whole, whatever the connection looks like. The error is ErrNoPeer when whoever asks
	// is no gateway of ours.
	Accept func(uri, signature string) (send func(ctx context.Context, w io.Writer, flush func() error) error, err error)
}

// ErrNoPeer is the error for a request that claims to come from another gateway and does not.
var ErrNoPeer = errors.New("not another gateway of ours")

var (
	errNoPeer      = &refusal{status: 403, reason: "signature refused"}
	errPeerRequest = &refusal{status: 400, reason: "bad request of a gateway"}
)

// isPeer tells whether a request is one of another gateway. Where none is expected, its path is as bad as any other.
func (h *Handler) isPeer(ctx *fasthttp.RequestCtx) bool {
	return h.o.Peer != nil && bytes.HasPrefix(ctx.Request.Header.RequestURI(), stringBytes(h.o.Peer.Path))
}

// servePeer answers another gateway.
func (h *Handler) servePeer(ctx *fasthttp.RequestCtx) {
	if err := h.startPeer(ctx); err != nil {
		why := refusalOf(err)
		if why.cause != nil {
			h.log.Warn("refused a request in the name of another gateway", "client", ctx.RemoteAddr().String(), "err", why.cause)
		}
		ctx.Error(why.reason+"\n", why.status)
		if why == errMethod {
			ctx.Response.Header.Set(fasthttp.HeaderAllow, fasthttp.MethodGet)
		}
	}
}

func (h *Handler) startPeer(ctx *fasthttp.RequestCtx) error {
	if !ctx.IsGet() {
		return errMethod
	}
	send, err := h.o.Peer.Accept(string(ctx.Request.Header.RequestURI()), string(ctx.Request.Header.Peek(h.o.Peer.Header)))
	switch {
	case errors.Is(err, ErrNoPeer):
		return &refusal{status: errNoPeer.status, reason: errNoPeer.reason, cause: err}
	case err != nil:
		return &refusal{status: errPeerRequest.status, reason: errPeerRequest.reason, cause: err}
	}
	ctx.SetContentType("application/octet-stream")
	ctx.Response.Header.SetCanonical(headerCacheControl, []byte("no-store"))
	// The writer ends with the connection, and the reader of what it wrote knows whether that was all.
	ctx.SetBodyStreamWriter(func(w *bufio.Writer) {
		_ = send(context.Background(), w, w.Flush)
	})
	return nil
}
