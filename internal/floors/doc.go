// Package floors holds the table of who may import whom, as a test: `go test ./internal/floors` names every import that
// breaks it, with file, line and reason.
package floors
