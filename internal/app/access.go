package app

import (
	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/gateway"
	"fastdfs-gateway/internal/httpserver/access"
	"fastdfs-gateway/internal/httpserver/clientaddr"
)

// proxies are those of trusted_proxies; nil if there are none.
func proxies(g *config.Gateway) *clientaddr.Proxies {
	if g.TrustedProxies.Empty() {
		return nil
	}
	return &clientaddr.Proxies{Trusted: networkSet(g.TrustedProxies), Method: clientaddr.Method(g.ClientAddress)}
}

// networkSet returns the set of a list; nil if it is empty.
func networkSet(n config.Networks) *clientaddr.Networks {
	if n.Empty() {
		return nil
	}
	return clientaddr.NewNetworks(n.Prefixes, n.Unix)
}

// accessRules are those of [access]; nil if there are none.
func accessRules(cfg *config.Config) (rules *gateway.Rules, err error) {
	a := &cfg.Access
	if a.Allow.Empty() && a.Deny.Empty() && len(a.Referers) == 0 && a.RequestsPerSecond == 0 && a.SendRate == 0 {
		return nil, nil
	}
	rules = &gateway.Rules{Allow: networkSet(a.Allow), Deny: networkSet(a.Deny),
		SendRate: a.SendRate, SendAfter: a.SendRateAfter}
	if a.RequestsPerSecond > 0 {
		rules.Requests = access.NewLimiter(a.RequestsPerSecond, a.RequestsBurst)
	}
	if len(a.Referers) == 0 {
		return rules, nil
	}
	if rules.Referers, err = access.NewReferers(a.Referers); err != nil {
		return nil, err
	}
	if a.RefererFile != "" {
		rules.RefererFile, err = readPage("referer_file of [access]", a.RefererFile, maxFailFile, cfg)
	}
	return rules, err
}

// keepLimiter takes over the counts of the rates from the handler in use, if a reload leaves the
// rates as they are.
func (a *App) keepLimiter(o *gateway.Options, old, now *config.Config) {
	if o.Rules == nil || old == nil || a.server == nil {
		return
	}
	was, is := &old.Access, &now.Access
	if was.RequestsPerSecond == is.RequestsPerSecond && was.RequestsBurst == is.RequestsBurst {
		o.Rules.Requests = a.server.Handler().Limiter()
	}
}
