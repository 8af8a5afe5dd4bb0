// The harness that runs the gateway beside a real FastDFS. A module of its own: the program needs nothing of it.
module fastdfs-gateway/tests/real

go 1.26.0

require (
	fastdfs-gateway v0.0.0
	github.com/stretchr/testify v1.12.1
)

require (
	go.yaml.in/yaml/v3 v3.0.6 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace fastdfs-gateway => ../..
