package status

import (
	"slices"
	"time"

	"fastdfs-gateway/internal/i18n"
)

// Problem is a problem that the operator on call should know.
type Problem struct {
	State State // Warn or Bad
	Text  i18n.Text
}

// Verdict is the health of a gateway.
type Verdict struct {
	State    State // Good, Warn or Bad
	Title    i18n.Text
	Sentence i18n.Text // why
	More     []Problem // the problems besides the one of the sentence
}

// Shares of failed responses in a minute from which they are a problem, and the rate of requests
// below which a share is not significant.
const (
	manyFailed    = .01
	tooManyFailed = .10
	rareRequests  = .1 // a second
)

// missingFor is the time for which a gateway without heartbeats is a problem: after that, it was
// removed on purpose.
const missingFor = time.Hour

// Verdict returns the health of the gateway, and the reason.
func (s *Snapshot) Verdict() Verdict {
	problems := s.problems()
	if len(problems) == 0 {
		return Verdict{Good, i18n.Plain("Healthy"), s.wellSentence(), nil}
	}
	v := Verdict{problems[0].State, i18n.Plain("Degraded"), problems[0].Text, problems[1:]}
	switch {
	case !s.NotReady.IsZero():
		v.Title = i18n.Plain("Not ready")
	case v.State == Bad:
		v.Title = i18n.Plain("Failing")
	}
	return v
}

// problemList collects problems.
type problemList []Problem

func (l *problemList) addProblem(state State, format string, args ...any) {
	*l = append(*l, Problem{state, i18n.Sprintf(format, args...)})
}

// problems returns all problems, the worst first.
func (s *Snapshot) problems() []Problem {
	var list problemList
	if !s.NotReady.IsZero() {
		list.addProblem(Bad, "Requests cannot be served: %s.", s.NotReady)
	}
	if m := s.Traffic.Minute; m.Requests >= rareRequests && m.Failed >= manyFailed*m.Requests {
		state := Warn
		if m.Failed >= tooManyFailed*m.Requests {
			state = Bad
		}
		list.addProblem(state, "%s of the responses of the last minute had a status of 500 or above.",
			percent(m.Failed/m.Requests))
	}
	s.serverProblems(&list)
	for _, b := range s.Budgets {
		if b.State > Idle {
			list.addProblem(b.State, "%s: %s.", b.Name, b.Text)
		}
	}
	s.certificateProblems(&list)
	s.fleetProblems(&list)
	for _, text := range s.Setup {
		list.addProblem(Warn, "%s.", text)
	}
	if !s.Sandbox.IsZero() {
		list.addProblem(Warn, "%s.", s.Sandbox)
	}
	if s.Panics > 0 {
		list.addProblem(Warn, "%s contained since the start: a bug in the program, see the log.",
			Plural(int(s.Panics), "%s panic was", "%s panics were"))
	}
	slices.SortStableFunc(list, func(a, b Problem) int { return int(b.State) - int(a.State) })
	return list
}

// serverProblems adds the problems of storages, by group, and of trackers.
func (s *Snapshot) serverProblems(list *problemList) {
	var groups []string
	all, down := map[string]int{}, map[string][]i18n.Text{} // by group
	for _, server := range s.Storages {
		if all[server.Group]++; all[server.Group] == 1 {
			groups = append(groups, server.Group)
		}
		if server.State > Idle {
			down[server.Group] = append(down[server.Group],
				i18n.Sprintf("%s %s", server.Address, server.Text))
		}
	}
	for _, group := range groups {
		state := Warn
		switch len(down[group]) {
		case 0:
			continue
		case all[group]:
			state = Bad
		}
		storages := Plural(all[group], "%s storage", "%s storages")
		if group == Unlisted { // a link may name any address
			list.addProblem(Warn, "%d of %s, named by file ids: %s.", len(down[group]), storages, few(down[group]))
			continue
		}
		list.addProblem(state, "%d of %s of %s: %s.", len(down[group]), storages, group, few(down[group]))
	}
	var names []i18n.Text
	for _, t := range s.Trackers {
		if t.State > Idle {
			names = append(names, i18n.Sprintf("%s", t.Address))
		}
	}
	if len(names) > 0 {
		list.addProblem(Warn, "%d of %s cannot be reached: %s. The lists of storages stay as they were.", len(names),
			Plural(len(s.Trackers), "%s tracker", "%s trackers"), few(names))
	}
}

// expiresSoon is the time before the end of a certificate in which its renewal is due.
const expiresSoon = 14 * 24 * time.Hour

func (s *Snapshot) certificateProblems(list *problemList) {
	for _, c := range s.Certificates {
		switch left := c.Expires.Sub(s.At); {
		case left < 0:
			list.addProblem(Bad, "The certificate of %s has ended: clients reject it.", c.Name)
		case left < expiresSoon:
			list.addProblem(Warn, "The certificate of %s ends in %s.", c.Name, Age(left))
		}
	}
}

func (s *Snapshot) fleetProblems(list *problemList) {
	if s.Fleet == nil {
		return
	}
	if s.Fleet.RedisDown {
		list.addProblem(Warn, "Redis (%s) cannot be reached: files are served, but purges reach this gateway alone.",
			s.Fleet.Redis)
	}
	for _, g := range s.Fleet.Gateways {
		switch {
		case !g.Live && s.At.Sub(g.Seen) < missingFor:
			list.addProblem(Warn, "Gateway %s has not been heard of for %s.", g.Name, Age(s.At.Sub(g.Seen)))
		case g.Live && g.OtherSecret:
			list.addProblem(Warn, "Gateway %s has another secret in [peer]: this one reads nothing from it.", g.Name)
		case g.Live && !g.Self && g.Announcement.State > Idle:
			list.addProblem(Warn, "Gateway %s is not well: %s", g.Name, g.Announcement)
		}
	}
}

// groupName returns a group as text for the page.
func groupName(group string) i18n.Text {
	if group == Unlisted {
		return i18n.Plain(Unlisted)
	}
	return i18n.Sprintf("%s", group)
}

// wellSentence returns the sentence of a gateway without problems: its servers, its fleet and its
// rate of requests.
func (s *Snapshot) wellSentence() i18n.Text {
	text := i18n.Plain("Files of this host are served")
	if len(s.Trackers) > 0 {
		text = Plural(len(s.Trackers), "%s tracker", "%s trackers")
		if len(s.Storages) > 0 {
			text = i18n.Sprintf("%s and %s", text, Plural(len(s.Storages), "%s storage", "%s storages"))
		}
		text = i18n.Sprintf("%s without a failure", text)
	}
	if s.Fleet != nil && len(s.Fleet.Gateways) > 1 {
		text = i18n.Sprintf("%s, %d gateways in the fleet", text, len(s.Fleet.Gateways))
	}
	if !s.Traffic.Now.Begin.IsZero() {
		text = i18n.Sprintf("%s, %s requests a second", text, number(s.Traffic.Now.Requests))
	}
	return i18n.Sprintf("%s.", text)
}

// few joins the first of many names, and counts the rest.
func few(names []i18n.Text) i18n.Text {
	const limit = 3
	text := names[0]
	for _, name := range names[1:min(len(names), limit)] {
		text = i18n.Sprintf("%s, %s", text, name)
	}
	if len(names) <= limit {
		return text
	}
	return i18n.Sprintf("%s and %d more", text, len(names)-limit)
}
