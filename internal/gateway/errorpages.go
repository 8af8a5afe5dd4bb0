package gateway

// errorPage returns the page of Options.ErrorPages for a status; nil if it has none. The page of a
// status has priority over the one of its class. 499 is for the access log alone.
func (h *Handler) errorPage(status int) *Page {
	if page := h.o.ErrorPages[status]; page != nil {
		return page
	}
	return h.o.ErrorPages[status/100]
}
