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

// accessRules are those of [access], and of [access ...] for selected files; nil if there are none.
func accessRules(cfg *config.Config) (*gateway.Rules, error) {
	a := &cfg.Access
	rules, err := fileRules(a, cfg)
	if err != nil {
		return nil, err
	}
	rules.SendRate, rules.SendAfter = a.SendRate, a.SendRateAfter
	if a.RequestsPerSecond > 0 {
		rules.Requests = access.NewLimiter(a.RequestsPerSecond, a.RequestsBurst)
	}
	for i := range cfg.FileAccess {
		f := &cfg.FileAccess[i]
		of, err := fileRules(&f.Access, cfg)
		if err != nil {
			return nil, err
		}
		rules.ByFile = append(rules.ByFile, gateway.FileRules{Files: f.Files, Rules: of, SetDeny: f.Set["deny"],
			SetAllow: f.Set["allow"], SetReferers: f.Set["referers"], SetFile: f.Set["referer_file"]})
	}
	if rules.Deny == nil && rules.Allow == nil && rules.Requests == nil && rules.Referers == nil &&
		rules.SendRate == 0 && rules.ByFile == nil {
		return nil, nil
	}
	return &rules, nil
}

// fileRules are the rules that can differ from file to file.
func fileRules(a *config.Access, cfg *config.Config) (rules gateway.Rules, err error) {
	rules.Allow, rules.Deny = networkSet(a.Allow), networkSet(a.Deny)
	if len(a.Referers) > 0 {
		if rules.Referers, err = access.NewReferers(a.Referers); err != nil {
			return rules, err
		}
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
