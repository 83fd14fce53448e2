package recipe

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/files"
	"github.com/posttrain/posttrain/internal/hub"
	"github.com/posttrain/posttrain/internal/hubcache"
	"github.com/posttrain/posttrain/rollout/local"
)

// CardName is the model card of a folder. The Hugging Face hub shows it.
const CardName = "README.md"

// writeCard describes the result from the run's own config and summary.
func (r *Run) writeCard(summary string) error {
	text, err := r.card(summary)
	if err != nil {
		return err
	}
	return r.Folder.WriteFile(filepath.Join(r.Kind(), CardName), []byte(text))
}

var libraryLine = regexp.MustCompile(`(?m)^library_name: .*$`)

// DeriveCard is the card of what was made of a model: the card of from, which may have none, for another library, with
// a section more.
func DeriveCard(from, library, heading, text string) string {
	card, err := os.ReadFile(filepath.Join(from, CardName))
	body := string(card)
	if err != nil {
		body = fmt.Sprintf("---\nbase_model: %s\nlibrary_name: any\ntags:\n- posttrain\n---\n\n# %s\n\n",
			strconv.Quote(baseName(from)), words(hub.Short(from)))
	}
	body = strings.TrimRight(body, "\n") + "\n\n" // a heading stands alone
	return libraryLine.ReplaceAllString(body, "library_name: "+library) + "## " + heading + "\n\n" + block("", text)
}

// Names of files, values of a config and a summary may come from elsewhere: in a card they are text, and neither
// Markdown nor HTML.

var markup = regexp.MustCompile("[\\\\`*<>&\\[\\]]")

// words are a text of a line.
func words(s string) string { return markup.ReplaceAllString(fault.Line(s), `\$0`) }

var backticks = regexp.MustCompile("`+")

// fence is at least that many backticks, and more than the text has in a row.
func fence(least int, text string) string {
	for _, some := range backticks.FindAllString(text, -1) {
		least = max(least, len(some)+1)
	}
	return strings.Repeat("`", least)
}

// span is a text of a line as code.
func span(s string) string {
	s = fault.Line(s)
	f := fence(1, s)
	if strings.HasPrefix(s, "`") || strings.HasSuffix(s, "`") {
		s = " " + s + " " // Markdown removes them
	}
	return f + s + f
}

// block is a text as lines of code.
func block(language, text string) string {
	f := fence(3, text)
	return fmt.Sprintf("%s%s\n%s%s\n", f, language, fault.Escape(text), f)
}

// card is the text of the model card.
func (r *Run) card(summary string) (string, error) {
	values, err := config.ValuesOf(r.resolved)
	if err != nil {
		return "", err
	}
	inputs, err := r.Folder.Inputs()
	if err != nil {
		return "", err
	}
	of := dataFiles(values, inputs)
	var s strings.Builder
	r.frontMatter(&s, of)
	fmt.Fprintf(&s, "# %s of %s\n\nTrained by `posttrain %s`.\n\n## Base model\n\n%s, weights %s.\n", r.Title,
		words(hub.Short(r.Base.Model)), r.Command, span(r.Base.Model), r.baseHash())
	fmt.Fprint(&s, "\n## Data\n\n")
	for _, f := range of {
		fmt.Fprintf(&s, "- `%s` %s: %s\n", f.key, span(f.path), f.hash)
	}
	fmt.Fprintf(&s, "\n## Objective\n\n%s\n## Metrics\n\n%s", block("", r.objective()), block("", summary))
	fmt.Fprintf(&s, "\n## Settings, and how to repeat the run\n\nWith the files above and this as config.yaml, the "+
		"same version, engine and seed give the same bits:\n\n```\nposttrain %s --config config.yaml\n```\n\n%s",
		r.Command, block("yaml", strings.TrimLeft(string(r.resolved), "\n")))
	return s.String(), nil
}

// frontMatter is what the hub reads of a card.
func (r *Run) frontMatter(w io.Writer, data []dataFile) {
	library, task := "transformers", "text-generation"
	if r.Adapting.On() {
		library = "peft"
	}
	if r.Model.Config.Reward {
		task = "text-classification"
	}
	fmt.Fprintf(w, "---\nbase_model: %s\nlibrary_name: %s\npipeline_tag: %s\ntags:\n- posttrain\n- %s\n",
		strconv.Quote(baseName(r.Base.Model)), library, task, r.Command)
	if len(data) > 0 {
		fmt.Fprintln(w, "datasets:")
	}
	for _, f := range data {
		fmt.Fprintf(w, "- %s\n", strconv.Quote(filepath.Base(f.path)))
	}
	fmt.Fprint(w, "---\n\n")
}

var baseLine = regexp.MustCompile(`(?m)^base_model: "?([^"\n]+)"?$`)

// baseName is the model's id on the hub, the base model that the folder's own card names, or the folder's name.
func baseName(folder string) string {
	if _, err := os.Stat(folder); err != nil {
		id, _, _ := strings.Cut(folder, "@")
		return id
	}
	if text, err := os.ReadFile(filepath.Join(folder, CardName)); err == nil {
		if m := baseLine.FindSubmatch(text); m != nil {
			return string(m[1])
		}
	}
	return filepath.Base(folder)
}

// baseHash is the hash that adapters have of their model, too.
func (r *Run) baseHash() string {
	m, _, err := local.LoadAny(r.Base.Model)
	if err != nil {
		return "not there any more"
	}
	defer m.Release()
	hash, err := m.Hash()
	if err != nil {
		return "not there any more"
	}
	return "SHA-256 `" + hash + "` (of their names and float32 values)"
}

// dataFile is a file that the config names as data.
type dataFile struct{ key, path, hash string }

// dataFiles are the files that values of the section data name, by a pattern too, with the hashes that they had when
// the run noted its inputs.
func dataFiles(values map[string][]string, inputs map[string]string) (out []dataFile) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if !strings.HasPrefix(key, "data.") {
			continue
		}
		for _, value := range values[key] {
			for _, path := range files.Match(value) {
				if f, noted := inputs[path]; noted {
					out = append(out, dataFile{key, hubcache.Short(path), "SHA-256 `" + f + "`"})
				} else if path == "embedded" {
					out = append(out, dataFile{key, path, "in the program"})
				}
			}
		}
	}
	return out
}

// objective is the formula of the explanation of the run's options.
func (r *Run) objective() string {
	var out strings.Builder
	if r.Options == nil {
		return ""
	}
	for line := range strings.Lines(r.Options.Explain()) {
		if out.Len() > 0 && !strings.HasPrefix(line, " ") {
			break
		}
		out.WriteString(line)
	}
	return out.String()
}
