package main

import (
	"bytes"
	_ "embed" // for the page
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"sync"

	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/lab"
)

//go:embed page.html
var pageText string

// pageTemplate is the page in the language of the environment.
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"tag": lang.Tag,
	"t": func(sentence string, args ...any) template.HTML {
		return template.HTML(i18n.Sprintf(sentence, args...).In(lang))
	},
	"in": func(text i18n.Text) string { return text.In(lang) },
}).Parse(pageText))

// site is the index page: the nodes, with a button for each that kills or starts it, and the files.
type site struct {
	addr  string // host:port of the page, which requests must name
	redis string // empty = none
	files []pageFile

	mu       sync.Mutex // guards the fields below
	gateways []node
	storages []node
}

// node is a part of the cluster that can be killed and started.
type node interface {
	addr() string
	up() bool
	kill()
	start() error
}

// pageFile is a file of the page.
type pageFile struct {
	Title                i18n.Text
	ID, Group, Addr, URL string
	Kind                 string // of its media type: image, audio, video or another
}

// pageNode is a node as the page shows it.
type pageNode struct {
	Addr, Admin, Group string
	PID                int
	Up                 bool
}

// ServeHTTP serves GET /, POST /kill and POST /start with the field addr. Pages of other origins
// may not use it.
func (s *site) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Host != s.addr {
		http.Error(w, "open http://"+s.addr+"/", http.StatusMisdirectedRequest)
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.show)
	mux.HandleFunc("POST /kill", func(w http.ResponseWriter, req *http.Request) {
		s.change(w, req, func(n node) error { n.kill(); return nil })
	})
	mux.HandleFunc("POST /start", func(w http.ResponseWriter, req *http.Request) { s.change(w, req, node.start) })
	http.NewCrossOriginProtection().Handler(mux).ServeHTTP(w, req)
}

func (s *site) show(w http.ResponseWriter, _ *http.Request) {
	page, err := s.page()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(page) // fails if the browser has disconnected
}

func (s *site) page() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, struct {
		Gateways, Storages []pageNode
		Redis              string
		Files              []pageFile
	}{shown(s.gateways), shown(s.storages), s.redis, s.files})
	if err != nil {
		return nil, fmt.Errorf("cannot write the index page: %w", err)
	}
	return b.Bytes(), nil
}

func shown(nodes []node) (list []pageNode) {
	for _, n := range nodes {
		p := pageNode{Addr: n.addr(), Up: n.up()}
		switch n := n.(type) {
		case *gatewayNode:
			p.Admin = n.Admin
			if p.Up {
				p.PID = n.PID()
			}
		case *storageNode:
			p.Group = n.Group()
		}
		list = append(list, p)
	}
	return list
}

// change kills or starts the node of a form, and shows the page again.
func (s *site) change(w http.ResponseWriter, req *http.Request, change func(node) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	nodes := slices.Concat(s.gateways, s.storages)
	addr := req.PostFormValue("addr")
	i := slices.IndexFunc(nodes, func(n node) bool { return n.addr() == addr })
	if i < 0 {
		http.Error(w, "there is no such part of the cluster", http.StatusNotFound)
		return
	}
	if err := change(nodes[i]); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	http.Redirect(w, req, "/", http.StatusSeeOther)
}

// gatewayNode is a gateway that can be killed and started again.
type gatewayNode struct {
	o lab.GatewayOptions
	*lab.Gateway
}

func (n *gatewayNode) addr() string { return n.Addr }

func (n *gatewayNode) up() bool {
	select {
	case <-n.Done:
		return false
	default:
		return true
	}
}

func (n *gatewayNode) kill() { n.Kill() }

func (n *gatewayNode) start() error {
	if n.Gateway != nil && n.up() {
		return nil
	}
	g, err := lab.StartGateway(n.o)
	if err != nil {
		return err
	}
	n.Gateway = g
	return nil
}

// storageNode is a storage of the cluster.
type storageNode struct {
	*fdfstest.Storage
	down bool
}

func (n *storageNode) addr() string { return n.Addr() }
func (n *storageNode) up() bool     { return !n.down }

func (n *storageNode) kill() {
	if !n.down {
		n.Kill()
		n.down = true
	}
}

func (n *storageNode) start() error {
	if !n.down {
		return nil
	}
	if err := n.Revive(); err != nil {
		return err
	}
	n.down = false
	return nil
}

// pageFiles returns the files of the page, with URLs spread over the gateways.
func pageFiles(files []file) (list []pageFile) {
	kinds := map[string]string{"jpg": "image", "png": "image", "svg": "image", "ogg": "audio", "webm": "video"}
	for i, f := range files {
		addr := lab.Address(ports[i%len(ports)])
		list = append(list, pageFile{Title: f.title, ID: f.id.String(), Group: f.id.Group, Addr: addr,
			URL: "http://" + addr + "/" + f.id.String(), Kind: kinds[f.id.Ext()]})
	}
	return list
}
