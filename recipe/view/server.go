package view

import (
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/page"
	"github.com/posttrain/posttrain/internal/serve"
)

// The parts of the page. uPlot draws the curves; scripts/page/uplot.sh brings its files.
var (
	//go:embed page/page.html
	pageText string
	//go:embed page/page.css
	pageOwnStyle string
	//go:embed page/*.js
	pageScripts embed.FS
	//go:embed page/uplot/uPlot.iife.min.js
	plotScript string
	//go:embed page/uplot/uPlot.min.css
	plotStyle string

	pageScript   = joined("base", "curves", "samples", "config", "cases", "start")
	pageStyle    = page.Style + plotStyle + pageOwnStyle
	pageTemplate = template.Must(template.New("page.html").Parse(pageText))
)

// joined are the page's own scripts as one.
func joined(names ...string) string {
	var all strings.Builder
	for _, name := range names {
		text, err := pageScripts.ReadFile("page/" + name + ".js")
		if err != nil {
			panic(err) // it is embedded
		}
		all.Write(text)
	}
	return all.String()
}

// policy lets the browser ask this server for answers, and run and apply only what is embedded here.
func policy() string {
	return page.Policy([]string{pageStyle}, []string{plotScript, pageScript}, "connect-src 'self'")
}

// writePage writes the page; filed are the answers that it has with it, nil where it asks a server.
func (v *View) writePage(w io.Writer, filed map[string]json.RawMessage) error {
	names := make([]string, len(v.runs))
	for i, s := range v.runs {
		names[i] = s.name
	}
	return pageTemplate.Execute(w, map[string]any{
		"Title": strings.Join(names, ", "), "Policy": policy(), "Style": template.CSS(pageStyle),
		"Plot": template.JS(plotScript), "Script": template.JS(pageScript), "Filed": filed,
	})
}

// Handler serves the page and its answers to clients that call this server by one of its names.
func (v *View) Handler(hosts serve.Hosts) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", policy()+"; frame-ancestors 'none'")
		_ = v.writePage(w, nil) // the client may be gone
	})
	mux.HandleFunc("GET /api/{name}", func(w http.ResponseWriter, r *http.Request) {
		text, err := v.answer(r.PathValue("name"), r.URL.Query())
		if err != nil {
			http.Error(w, err.Error(), codeOf(err))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
		w.Header().Set("Cache-Control", "no-store")
		if !hosts.Have(r.Host) {
			http.Error(w, "this name is not this machine's: want its address, localhost or the name in --listen",
				http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// answer is the JSON text of an answer.
func (v *View) answer(name string, q url.Values) ([]byte, error) {
	find, ok := answers[name]
	if !ok {
		return nil, notFound("there is no /api/%s", name)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	out, err := find(v, q)
	if err != nil {
		return nil, err
	}
	return json.Marshal(out)
}

// Write writes the page into a file with all its answers. It needs no server.
func (v *View) Write(path string) error {
	filed, err := v.filed()
	if err != nil {
		return err
	}
	return data.WriteFile(path, func(w io.Writer) error { return v.writePage(w, filed) })
}

// filed are the answers of a page in a file, by their addresses.
func (v *View) filed() (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	put := func(address string, answer any) error {
		text, err := json.Marshal(answer)
		out[address] = text
		return err
	}
	for _, name := range []string{"runs", "config", "cases"} {
		text, err := v.answer(name, nil)
		if err != nil {
			return nil, err
		}
		out[name] = text
	}
	for _, metric := range v.metrics() {
		if err := put("curves?metric="+escape(metric), v.curves(metric, filedPoints)); err != nil {
			return nil, err
		}
	}
	return out, v.fileTexts(put)
}

// filedSamples are those of a set that a page in a file has.
const filedSamples = 200

// fileTexts puts samples and cases.
func (v *View) fileTexts(put func(address string, answer any) error) error {
	if err := put("samples", v.samples(filedSamples)); err != nil {
		return err
	}
	for i, s := range v.runs {
		for k, of := range s.sets() {
			for row := range min(filedSamples, len(of.rows)) {
				sample, err := of.sample(row)
				if err == nil {
					err = put(fmt.Sprintf("sample?run=%d&set=%d&row=%d", i, k, row), sample)
				}
				if err != nil {
					return err
				}
			}
		}
		for _, c := range s.cases {
			answer, err := v.answerCase(url.Values{"name": {c.Name}})
			if err == nil {
				err = put("case?name="+escape(c.Name), answer)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// escape writes a value of a query as the page's encodeURIComponent does.
func escape(value string) string { return strings.ReplaceAll(url.QueryEscape(value), "+", "%20") }

// metrics are those of all runs.
func (v *View) metrics() (all []string) {
	seen := map[string]bool{}
	for _, s := range v.runs {
		for _, name := range s.table.names() {
			if !seen[name] {
				seen[name], all = true, append(all, name)
			}
		}
	}
	return all
}
