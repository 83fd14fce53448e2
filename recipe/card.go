package recipe

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/files"
	"github.com/posttrain/posttrain/internal/hub"
	"github.com/posttrain/posttrain/internal/hubcache"
	"github.com/posttrain/posttrain/rollout/local"
)

// CardName is the model card of a folder. The Hugging Face hub shows it.
const CardName = "README.md"

// seal is the last line of a card that nobody has edited: it has the SHA-256 of what is before it.
var seal = regexp.MustCompile(`<!-- written by posttrain, sha256 ([0-9a-f]{64}) -->\n$`)

// Sealed says that a card is as posttrain wrote it.
func Sealed(card string) bool {
	at := seal.FindStringSubmatchIndex(card)
	return at != nil && card[at[2]:at[3]] == shaOf(card[:at[0]])
}

func shaOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// keepCard writes the card that a folder had before it was replaced, if a user wrote or edited it.
func (r *Run) keepCard(dir string) error {
	text, err := os.ReadFile(r.Folder.Path(filepath.Join(r.Kind(), CardName)))
	if errors.Is(err, fs.ErrNotExist) || err == nil && Sealed(string(text)) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, CardName), text, 0o644)
}

// writeCard describes the result from the run's own config and summary, unless a user has written a card.
func (r *Run) writeCard(summary string) error {
	name := filepath.Join(r.Kind(), CardName)
	if _, err := os.Stat(r.Folder.Path(name)); err == nil { // kept: those of posttrain were left out by Save
		return nil
	}
	text, err := r.card(summary)
	if err != nil {
		return err
	}
	return r.Folder.WriteFile(name, []byte(sealed(text)))
}

// sealed is a card with its seal.
func sealed(text string) string {
	return text + fmt.Sprintf("<!-- written by posttrain, sha256 %s -->\n", shaOf(text))
}

var libraryLine = regexp.MustCompile(`(?m)^library_name: .*$`)

// DeriveCard is the card of what was made of a model: that of from, which may have none, for another library, with a
// section more.
func DeriveCard(from, library, heading, text string) string {
	card, err := os.ReadFile(filepath.Join(from, CardName))
	body := seal.ReplaceAllString(string(card), "")
	if err != nil {
		body = fmt.Sprintf("---\nbase_model: %s\nlibrary_name: any\ntags:\n- posttrain\n---\n\n# %s\n\n",
			strconv.Quote(baseName(from)), hub.Short(from))
	}
	body = strings.TrimRight(body, "\n") + "\n\n" // a heading stands alone
	return sealed(libraryLine.ReplaceAllString(body, "library_name: "+library) +
		fmt.Sprintf("## %s\n\n```\n%s```\n\n", heading, text))
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
	fmt.Fprintf(&s, "# %s of %s\n\nTrained by `posttrain %s`.\n\n## Base model\n\n`%s`, weights %s.\n", r.Title,
		hub.Short(r.Base.Model), r.Command, r.Base.Model, r.baseHash())
	fmt.Fprint(&s, "\n## Data\n\n")
	for _, f := range of {
		fmt.Fprintf(&s, "- `%s` `%s`: %s\n", f.key, f.path, f.hash)
	}
	if text := r.objective(); text != "" {
		fmt.Fprintf(&s, "\n## Objective\n\n```\n%s```\n", text)
	}
	fmt.Fprintf(&s, "\n## Metrics\n\n```\n%s```\n", summary)
	fmt.Fprintf(&s, "\n## Settings, and how to repeat the run\n\nWith the files above and this as config.yaml, the "+
		"same version, engine and seed give the same bits:\n\n```\nposttrain %s --config config.yaml\n```\n\n"+
		"```yaml\n%s```\n\n", r.Command, strings.TrimLeft(string(r.resolved), "\n"))
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

// objective is the formula of the command's explanation; "": it has none.
func (r *Run) objective() string {
	command := config.Find(r.Command)
	if command == nil {
		return ""
	}
	options, err := command.Read(config.Input{Path: r.Folder.Path("config.yaml")})
	o, explains := options.(config.Explainer)
	if err != nil || !explains {
		return ""
	}
	var out strings.Builder
	for line := range strings.Lines(o.Explain()) {
		if out.Len() > 0 && !strings.HasPrefix(line, " ") {
			break
		}
		out.WriteString(line)
	}
	return out.String()
}
