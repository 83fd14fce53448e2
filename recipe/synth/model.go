package synth

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"text/template"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/data/records"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/rollout/metered"
	"github.com/posttrain/posttrain/rollout/remote"
)

// writerName is what errors and messages call the model.
const writerName = "writer"

//go:embed prompts/*.tmpl
var promptFiles embed.FS

// prompts are the templates: vignettes.tmpl asks for vignettes, item.tmpl for an item, repair.tmpl for a better reply.
var prompts = template.Must(template.New("").Option("missingkey=error").ParseFS(promptFiles, "prompts/*.tmpl"))

// meanings say what the principles are.
var meanings = map[string]string{
	ci.Principles[0]: "Information that has nothing to do with the purpose of the message is not passed on.",
	ci.Principles[1]: "The message holds as much as its purpose needs and no more, even about the same topic.",
	ci.Principles[2]: "The information is about a third person, and is passed on only where that person has agreed.",
}

// fill writes a prompt.
func fill(name string, with any) string {
	var s strings.Builder
	if err := prompts.ExecuteTemplate(&s, name, with); err != nil {
		panic(err) // a fault of the program: the templates are part of it
	}
	return strings.TrimSpace(s.String())
}

// model is the writer on a server.
type model struct {
	client   *metered.Client
	reporter run.Reporter
	plain    atomic.Bool // the server refuses schemas
	agent    bool        // items have documents
	named    bool        // and a norm
	luck     [2]luck     // with vignettes, with items
}

// openModel opens the server's client, which keeps every reply in the file before it counts.
func openModel(o Options, replies string, r run.Reporter) (*model, error) {
	m := &model{reporter: r, agent: o.Agent != "", named: o.Policy != "", luck: [2]luck{{what: "vignettes"}, {what: "items"}}}
	options := o.Writer.Options
	options.Name, options.Temperature, options.Warn = writerName, o.Writer.Temperature, r.Warn
	options.Cache = cmp.Or(options.Cache, replies)
	var err error
	if m.client, err = metered.Open(options); err != nil {
		return nil, err
	}
	m.plain.Store(!o.Writer.Structured)
	return m, nil
}

// vignettes asks for the vignettes of a seed. Where the second reply has faults, too, the good ones of a reply count.
func (m *model) vignettes(ctx context.Context, s Seed) (all []ci.Seed, o Outcome, err error) {
	prompt := fill("vignettes.tmpl", map[string]any{"Scenario": s.Scenario, "Domain": s.Domain,
		"Principle": s.TransmissionPrinciple, "Meaning": meanings[s.TransmissionPrinciple], "Count": s.Count,
		"Number": s.number, "Total": s.total})
	o, err = m.ask(ctx, prompt, vignettesSchema, func(reply string) []string {
		good, faults := readVignettes(reply, s)
		if len(good) >= len(all) {
			all = good
		}
		return faults
	})
	if err == nil {
		err = m.luck[0].count(len(all) > 0, o)
	}
	return all, o, err
}

// item asks for the item of a vignette, nil where no reply has one. An item that fails gates twice is kept: the gates
// reject it.
func (m *model) item(ctx context.Context, v ci.Seed) (item *ci.Item, o Outcome, err error) {
	prompt := fill("item.tmpl", struct {
		ci.Seed
		Meaning string
	}{v, meanings[v.TransmissionPrinciple]})
	o, err = m.ask(ctx, prompt, itemSchema, func(reply string) []string {
		found, faults := readItem(reply, v)
		if found != nil {
			item = found
		}
		return faults
	})
	if err == nil {
		err = m.luck[1].count(item != nil, o)
	}
	if err == nil && m.agent && item != nil && len(o.Faults) == 0 {
		repaired := o.Repaired
		o, err = m.documents(ctx, item)
		if o.Repaired += repaired; len(item.Scene.Documents) > 0 {
			item.Stage(0, m.named) // names the norm
		}
	}
	return item, o, err
}

// documents asks for the files in which an agent finds the information of an item. Where two replies have faults, the
// gates reject the item.
func (m *model) documents(ctx context.Context, item *ci.Item) (Outcome, error) {
	return m.ask(ctx, fill("documents.tmpl", item), documentsSchema, func(reply string) (faults []string) {
		var r struct {
			Documents []struct{ Place, Text string }
		}
		item.Scene.Documents = nil
		if faults = decode(reply, &r); faults != nil {
			return faults
		}
		for i, d := range r.Documents {
			if !slices.Contains(ci.Places, d.Place) {
				faults = append(faults, fmt.Sprintf("the place %q: want %s", data.OneLine(d.Place, 40), fault.Or(ci.Places)))
			}
			item.Scene.Documents = append(item.Scene.Documents, ci.Document{ID: fmt.Sprintf("%s %d", d.Place, i+1), Text: d.Text})
		}
		if len(r.Documents) < 2 {
			faults = append(faults, fmt.Sprintf("there are %d documents: want two or three", len(r.Documents)))
		}
		for _, f := range records.Gates(item) {
			if f.Gate == "document" {
				faults = append(faults, inWordsOfReply.Replace(f.String()))
			}
		}
		return faults
	})
}

// luck counts replies that can be used.
type luck struct {
	sync.Mutex
	what      string
	all, good int
}

// patience is how many questions a model may answer without a reply that can be used.
const patience = 10

// count returns an error if enough is done and nothing can be used.
func (l *luck) count(good bool, o Outcome) error {
	l.Lock()
	defer l.Unlock()
	if l.all++; good {
		l.good++
	}
	if l.good > 0 || l.all < patience {
		return nil
	}
	return l.err(o)
}

func (l *luck) err(o Outcome) error {
	return fmt.Errorf("the model writes no %s: no reply to %d questions can be used, after a second try each; the "+
		"last: %s: %q: want another model", l.what, l.all, strings.Join(o.Faults, "; "), data.OneLine(o.Reply, 80))
}

// ask puts a prompt to the model, and its faults to it once if read finds some in the reply.
func (m *model) ask(ctx context.Context, prompt string, schema json.RawMessage,
	read func(reply string) (faults []string)) (Outcome, error) {
	messages := []data.Message{{Role: "user", Content: prompt}}
	for repaired := 0; ; repaired++ {
		reply, err := m.structured(ctx, messages, schema)
		if err != nil {
			return Outcome{}, err
		}
		faults := read(reply)
		if len(faults) == 0 {
			return Outcome{Repaired: repaired}, nil
		}
		if repaired > 0 {
			return Outcome{repaired, faults, data.OneLine(reply, mostOfReply)}, nil
		}
		complaint := fill("repair.tmpl", map[string]any{"Faults": faults})
		messages = append(messages, data.Message{Role: "assistant", Content: reply},
			data.Message{Role: "user", Content: complaint})
	}
}

// mostOfReply bounds what is kept of a reply that cannot be used.
const mostOfReply = 2000

// structured asks for a reply by the schema, or for free text once the server has refused a schema.
func (m *model) structured(ctx context.Context, messages []data.Message, schema json.RawMessage) (string, error) {
	if m.plain.Load() {
		reply, err := m.client.Chat(ctx, messages)
		return reply.Text, err
	}
	reply, err := m.client.Structured(ctx, messages, schema)
	refused, ok := errors.AsType[*remote.Error](err)
	if !ok || refused.Status != http.StatusBadRequest && refused.Status != http.StatusUnprocessableEntity {
		return reply.Text, err
	}
	if reply, again := m.client.Chat(ctx, messages); again == nil {
		if !m.plain.Swap(true) {
			m.reporter.Say("the server refuses a JSON schema (%v): the replies are checked alone", err)
		}
		return reply.Text, nil
	}
	return "", err
}

// The forms of replies. Objects have no free keys, which structured output does not allow.
var (
	vignettesSchema = object("vignettes", list(object("user_intention", text, "sender", text, "recipient", text,
		"data_subject", text, "required", list(text), "restricted", list(text))))
	itemSchema = object("user_task", text, "information", list(object("key", text, "value", text, "keyword", text,
		"label", json.RawMessage(`{"type":"string","enum":["required","restricted"]}`))))
	documentsSchema = object("documents", list(object("place", text, "text", text)))
	text            = json.RawMessage(`{"type":"string"}`)
)

func list(of json.RawMessage) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"type":"array","items":%s}`, of))
}

// object takes names and schemas in turn.
func object(fields ...any) json.RawMessage {
	var names, properties []string
	for i := 0; i < len(fields); i += 2 {
		names = append(names, fmt.Sprintf("%q", fields[i]))
		properties = append(properties, fmt.Sprintf("%q:%s", fields[i], fields[i+1]))
	}
	const form = `{"type":"object","properties":{%s},"required":[%s],"additionalProperties":false}`
	return json.RawMessage(fmt.Sprintf(form, strings.Join(properties, ","), strings.Join(names, ",")))
}

// decode reads the JSON object of a reply, which may have thoughts before it and a fence around it.
func decode(reply string, into any) (faults []string) {
	reply, _ = bench.WithoutThoughts(reply, false)
	from, to := strings.IndexByte(reply, '{'), strings.LastIndexByte(reply, '}')
	if from < 0 || to < from {
		return []string{"there is no JSON object in it"}
	}
	if err := json.Unmarshal([]byte(reply[from:to+1]), into); err != nil {
		return []string{fmt.Sprintf("it is not valid JSON of the form asked for: %v", err)}
	}
	return nil
}

// readVignettes reads the vignettes of a reply that are in order, and says what is wrong with it.
func readVignettes(reply string, s Seed) (good []ci.Seed, faults []string) {
	var r struct {
		Vignettes []struct {
			UserIntention string `json:"user_intention"`
			Sender        string
			Recipient     string
			DataSubject   string `json:"data_subject"`
			Required      []string
			Restricted    []string
		}
	}
	if faults := decode(reply, &r); faults != nil {
		return nil, faults
	}
	for i, v := range r.Vignettes[:min(len(r.Vignettes), s.Count)] {
		seed := s.Seed
		seed.UserIntention, seed.Sender, seed.Recipient = v.UserIntention, v.Sender, v.Recipient
		seed.DataSubject = v.DataSubject
		seed.InformationType = ci.InformationType{Allowed: v.Required, Disallowed: v.Restricted}
		wrong := faultsOf(seed)
		for _, f := range wrong {
			faults = append(faults, fmt.Sprintf("vignette %d: %s", i+1, f))
		}
		if len(wrong) == 0 {
			good = append(good, seed)
		}
	}
	if n := len(r.Vignettes); n != s.Count {
		faults = append(faults, fmt.Sprintf("it has %d vignettes: want %d", n, s.Count))
	}
	return good, faults
}

// faultsOf says what is wrong with a vignette.
func faultsOf(s ci.Seed) (faults []string) {
	for _, f := range []struct{ name, text string }{{"user_intention", s.UserIntention}, {"sender", s.Sender},
		{"recipient", s.Recipient}, {"data_subject", s.DataSubject}} {
		if strings.TrimSpace(f.text) == "" {
			faults = append(faults, f.name+" is missing or empty")
		}
	}
	seen := map[string]string{}
	for _, side := range []struct {
		name  string
		kinds []string
	}{{"required", s.InformationType.Allowed}, {"restricted", s.InformationType.Disallowed}} {
		if len(side.kinds) == 0 {
			faults = append(faults, side.name+" is missing or empty")
		}
		for _, kind := range side.kinds {
			folded := strings.ToLower(strings.Join(strings.Fields(kind), " "))
			switch before, twice := seen[folded]; {
			case folded == "":
				faults = append(faults, side.name+" has an empty entry")
			case twice && before == side.name:
				faults = append(faults, fmt.Sprintf("%s has %q twice", side.name, kind))
			case twice:
				faults = append(faults, fmt.Sprintf("%q is required and restricted", kind))
			}
			seen[folded] = side.name
		}
	}
	return faults
}

// readItem reads the item of a reply, nil if it has no item, and says what is wrong with it.
func readItem(reply string, v ci.Seed) (item *ci.Item, faults []string) {
	var r struct {
		UserTask    string `json:"user_task"`
		Information []struct{ Key, Value, Keyword, Label string }
	}
	if faults := decode(reply, &r); faults != nil {
		return nil, faults
	}
	if r.UserTask == "" || len(r.Information) == 0 {
		return nil, []string{"user_task or information is missing"}
	}
	item = &ci.Item{Seed: v, DatasetItem: ci.DatasetItem{UserTask: r.UserTask}}
	d := &item.DatasetItem
	for _, f := range r.Information {
		d.Information = append(d.Information, ci.Field{Key: f.Key, Text: f.Value})
		word := ci.Keyword{Key: f.Key, Words: []string{strings.TrimSpace(f.Keyword)}}
		switch f.Label {
		case "required":
			d.Annotation.Allowed = append(d.Annotation.Allowed, word)
		case "restricted":
			d.Annotation.Disallowed = append(d.Annotation.Disallowed, word)
		default:
			return nil, []string{fmt.Sprintf("the information %s has the label %q: want required or restricted", f.Key,
				data.OneLine(f.Label, 40))}
		}
	}
	for _, f := range records.Gates(item) {
		faults = append(faults, inWordsOfReply.Replace(f.String()))
	}
	return item, faults
}

// inWordsOfReply turns the names of an item's fields into a reply's.
var inWordsOfReply = strings.NewReplacer("dataset_item.", "", "annotation.allowed", "required keyword",
	"annotation.disallowed", "restricted keyword", "allowed", "required", "disallowed", "restricted")
