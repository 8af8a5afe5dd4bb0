package app

import (
	"reflect"

	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/gateway"
	"fastdfs-gateway/internal/httpserver/access"
	"fastdfs-gateway/internal/httpserver/clientaddr"
)

// proxies returns the proxies of trusted_proxies; nil if there are none.
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

// addRules adds the rules of [access] and of the sections [access SELECTORS].
func addRules(o *gateway.Options, cfg *config.Config) error {
	rules, err := sectionRules(&cfg.Access, config.AccessName, cfg)
	if err != nil {
		return err
	}
	if rules != (gateway.Rules{}) {
		o.Rules = &rules
	}
	for _, s := range cfg.AccessSections {
		a := s.Access
		if !s.Writes("referer_file") {
			a.RefererFile = ""
		}
		section := gateway.RuleSection{Files: s.Files}
		if section.Rules, err = sectionRules(&a, s.Name, cfg); err != nil {
			return err
		}
		for _, r := range replacements {
			if s.Writes(r.keys...) {
				section.Replace = append(section.Replace, r.replace)
			}
		}
		o.RuleSections = append(o.RuleSections, section)
	}
	return nil
}

// replacements are the rules that a section with one of the keys replaces. requests_per_second and
// requests_burst are one rule, and so are the two responses to a referer.
var replacements = []struct {
	keys    []string
	replace func(to, from *gateway.Rules)
}{
	{[]string{"allow"}, func(to, from *gateway.Rules) { to.Allow = from.Allow }},
	{[]string{"deny"}, func(to, from *gateway.Rules) { to.Deny = from.Deny }},
	{[]string{"unlimited"}, func(to, from *gateway.Rules) { to.Unlimited = from.Unlimited }},
	{[]string{"requests_per_second", "requests_burst"},
		func(to, from *gateway.Rules) { to.Requests = from.Requests }},
	{[]string{"referers"}, func(to, from *gateway.Rules) { to.Referers = from.Referers }},
	{[]string{"referer_file", "referer_redirect"},
		func(to, from *gateway.Rules) { to.RefererFile, to.RefererURL = from.RefererFile, from.RefererURL }},
	{[]string{"send_rate"}, func(to, from *gateway.Rules) { to.SendRate = from.SendRate }},
	{[]string{"send_rate_after"}, func(to, from *gateway.Rules) { to.SendAfter = from.SendAfter }},
}

// sectionRules returns the rules of one section.
func sectionRules(a *config.Access, section string, cfg *config.Config) (rules gateway.Rules, err error) {
	rules = gateway.Rules{Allow: networkSet(a.Allow), Deny: networkSet(a.Deny), Unlimited: networkSet(a.Unlimited),
		SendRate: a.SendRate, SendAfter: a.SendRateAfter, RefererURL: a.RefererRedirect}
	if a.RequestsPerSecond > 0 {
		rules.Requests = access.NewLimiter(a.RequestsPerSecond, a.RequestsBurst)
	}
	if len(a.Referers) > 0 {
		if rules.Referers, err = access.NewReferers(a.Referers); err != nil {
			return rules, err
		}
	}
	if a.RefererFile != "" && cfg.ChecksReferers() {
		rules.RefererFile, err = readPage("referer_file of ["+section+"]", a.RefererFile, config.MaxPage, cfg)
	}
	return rules, err
}

// keepLimiters takes over the limiters, with their counts, from the handler in use, if a reload
// does not change the rules.
func (a *App) keepLimiters(o *gateway.Options, old, now *config.Config) {
	if old == nil || !reflect.DeepEqual(old.Access, now.Access) ||
		!reflect.DeepEqual(old.AccessSections, now.AccessSections) {
		return
	}
	limiters := a.handler().Limiters()
	if o.Rules != nil {
		o.Rules.Requests = limiters[0]
	}
	for i := range o.RuleSections {
		o.RuleSections[i].Rules.Requests = limiters[1+i]
	}
}
