// Package containers checks the examples for containers in packaging/examples: kubernetes.yaml by
// the types of the Kubernetes API, compose.yaml by the loader of Docker Compose, and the
// configurations in them by gateway check.
package containers
