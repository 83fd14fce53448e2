package floors

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// makers are what makes HTTP clients, or uses one that is there, by the path of the package.
var makers = map[string][]string{
	"net/http": {"Client", "DefaultClient", "Transport", "DefaultTransport", "Get", "Head", "Post", "PostForm"},
	retry:      {"Client", "NewClient", "Get", "Head", "Post", "PostForm"},
	openai:     {"NewClient", "NewClientWithConfig", "NewOrgClient", "DefaultConfig", "DefaultAzureConfig"},
}

// TestOneMakerOfClients: internal/web alone makes HTTP clients. Another one would take keys wherever a server redirects.
func TestOneMakerOfClients(t *testing.T) {
	found := 0
	for _, s := range sourcesOf(t) {
		all := s.clients()
		if s.Package() == "internal/web" && !s.Test() {
			found += len(all)
		} else if !s.Test() && !slices.Contains(TestsOnly, s.Package()) {
			for _, f := range all {
				t.Errorf("%s: want a client of internal/web", f)
			}
		}
	}
	if found == 0 {
		t.Error("internal/web makes no client: the test sees none")
	}
}

// TestClientsAreSeen: each way to make a client, and pointers to one, which do not.
func TestClientsAreSeen(t *testing.T) {
	for text, want := range map[string]int{
		`import "net/http"; var c = http.Client{}`:                                                     1,
		`import "net/http"; var c = &http.Client{Transport: new(http.Transport)}`:                      2,
		`import web "net/http"; var c web.Client`:                                                      1,
		`import "net/http"; func f() { http.Get("a"); http.DefaultClient.Head("b") }`:                  2,
		`import "net/http"; func f(c *http.Client, t *http.Transport, r http.RoundTripper) {}`:         0,
		`import "net/http"; func f(c any) bool { _, is := c.(*http.Client); return is }`:               0,
		`import retry "` + retry + `"; var c = retry.NewClient()`:                                      1,
		`import "` + openai + `"; var c = openai.NewClient("key")`:                                     1,
		`import "net/http/httptest"; type http struct{ Client int }; var a http; var b = a.Client + 1`: 0,
	} {
		s, err := parseText("a.go", "package a; "+text)
		if err != nil {
			t.Fatal(text, err)
		}
		if got := s.clients(); len(got) != want {
			t.Errorf("%s: %q, want %d", text, got, want)
		}
	}
}

// clients returns a line for each place that makes a client.
func (s Source) clients() (found []string) {
	banned := map[string][]string{}
	for _, i := range s.Syntax.Imports {
		from := strings.Trim(i.Path.Value, `"`)
		name := strings.TrimPrefix(path.Base(from), "go-")
		if i.Name != nil {
			name = i.Name.Name
		}
		banned[name] = makers[from]
	}
	ast.Inspect(s.Syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StarExpr: // a pointer is of a client that is there
			_, pointer := n.X.(*ast.SelectorExpr)
			return !pointer
		case *ast.SelectorExpr:
			if x, is := n.X.(*ast.Ident); is && slices.Contains(banned[x.Name], n.Sel.Name) {
				found = append(found, fmt.Sprintf("%s: %s.%s", positions.Position(n.Pos()), x.Name, n.Sel.Name))
			}
		}
		return true
	})
	return found
}
