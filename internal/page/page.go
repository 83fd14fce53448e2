// Package page has what the web pages of posttrain share: their style, the policy that keeps a browser from running
// anything else, and texts with marked parts.
package page

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"strings"
)

// Style is the style that every page begins with: colours in light and dark, tables, fields, badges, marks.
//
//go:embed page.css
var Style string

// Policy is a Content-Security-Policy. The browser loads nothing, but for what more allows, and applies and runs only
// these styles and scripts, each the whole text of an element.
func Policy(styles, scripts []string, more ...string) string {
	rules := []string{"default-src 'none'", "style-src " + hashes(styles), "script-src " + hashes(scripts)}
	return strings.Join(append(append(rules, more...), "base-uri 'none'", "form-action 'none'"), "; ")
}

func hashes(texts []string) string {
	all := make([]string, len(texts))
	for i, text := range texts {
		sum := sha256.Sum256([]byte(text))
		all[i] = "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return strings.Join(all, " ")
}
