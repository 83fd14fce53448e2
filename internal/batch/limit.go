package batch

import (
	"fmt"
	"slices"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
)

// Options limit and shape the token sequences of a data set. Limits count tokens; 0 is no limit.
type Options struct {
	MaxPromptTokens     int    `yaml:"max_prompt_tokens" want:">=0" help:"longest prompt kept, in tokens; 0: no limit"`
	MaxCompletionTokens int    `yaml:"max_completion_tokens" want:">=0" help:"longest answer kept, end-of-turn token included; 0: no limit"`
	MaxTokens           int    `yaml:"max_tokens" want:">=0" help:"longest prompt + answer kept; 0: no limit"`
	Truncate            string `yaml:"truncate" want:"none|prompt|completion|both" default:"none" help:"none: drop and count what is too long; else cut the prompt's start, the answer's end, or both"`
}

// Defaults set no limits, as the zero value does.
func Defaults() Options { return config.Default[Options]() }

// Check wants the limit at which truncation cuts.
func (o Options) Check() []fault.Fault {
	faults := fault.Check(o)
	prompt, completion, whole := o.MaxPromptTokens > 0, o.MaxCompletionTokens > 0, o.MaxTokens > 0
	for _, c := range []struct {
		truncate string
		enough   bool
		needs    string
	}{
		{"prompt", prompt || whole, "data.max_prompt_tokens or data.max_tokens"},
		{"completion", completion || whole, "data.max_completion_tokens or data.max_tokens"},
		{"both", prompt && completion || whole, "data.max_tokens, or both data.max_prompt_tokens and " +
			"data.max_completion_tokens"},
	} {
		if o.Truncate == c.truncate && !c.enough {
			problem := "give the limit to cut at, " + c.needs
			faults = append(faults, fault.Fault{Key: "truncate", Value: o.Truncate, Problem: problem})
		}
	}
	return faults
}

// Limited is the outcome of applying limits to a data set: what was kept, and why the rest was not.
type Limited struct {
	Keep      []int // indices of the groups kept
	Dropped   int   // too long under a limit
	Empty     int   // an answer without tokens
	Equal     int   // two answers of the same tokens, which a template or a cut made: they teach no preference
	Truncated int   // cut to fit, on request
}

func (l Limited) String() string {
	text := fmt.Sprintf("%d kept, %d dropped as too long, %d dropped as empty, %d truncated", len(l.Keep), l.Dropped,
		l.Empty, l.Truncated)
	if l.Equal > 0 {
		text += fmt.Sprintf(", %d dropped as equal", l.Equal)
	}
	return text
}

// Limit applies the limits to groups, in place where truncation is asked for. A group with an over-long stretch is
// dropped whole: a pair with one answer cut away would train on an empty mask. positions is the most tokens that the
// model can take; 0 is no limit. A prompt that begins with bos keeps it when it is cut; nil: there is no such token.
func Limit(groups []Group, o Options, positions int, bos *int32) Limited {
	var l Limited
	for i := range groups {
		cut := truncate(&groups[i], o, bos)
		switch {
		case len(groups[i].Prompt) == 0 || slices.ContainsFunc(groups[i].Answers, isEmpty):
			l.Empty++
		case tooLong(groups[i], o, positions):
			l.Dropped++
		case len(groups[i].Answers) == 2 && slices.Equal(groups[i].Answers[0], groups[i].Answers[1]):
			l.Equal++
		default:
			l.Keep = append(l.Keep, i)
			if cut {
				l.Truncated++
			}
		}
	}
	return l
}

func isEmpty(answer []int32) bool { return len(answer) == 0 }

func tooLong(g Group, o Options, positions int) bool {
	over := func(n, limit int) bool { return limit > 0 && n > limit }
	long := over(len(g.Prompt), o.MaxPromptTokens)
	for _, a := range g.Answers {
		n := len(g.Prompt) + len(a)
		long = long || over(len(a), o.MaxCompletionTokens) || over(n, o.MaxTokens) || over(n-1, positions)
	}
	return long
}

// truncate cuts the prompt's start and the completions' ends where the options ask for it. It never empties an
// answer, and keeps the prompt's last token, from which the answer starts, and its bos, where there is room for two.
func truncate(g *Group, o Options, bos *int32) bool {
	cut, begin := false, 0
	if bos != nil && len(g.Prompt) > 0 && g.Prompt[0] == *bos {
		begin = 1
	}
	if o.Truncate == "completion" || o.Truncate == "both" {
		for i, a := range g.Answers {
			if n := answerLimit(len(g.Prompt), begin, o); n > 0 && len(a) > n {
				if g.Answers[i], cut = a[:n], true; g.Trained != nil {
					g.Trained[i] = g.Trained[i][:n]
				}
			}
		}
	}
	if o.Truncate == "prompt" || o.Truncate == "both" {
		if n := promptLimit(*g, o); n > 0 && len(g.Prompt) > n {
			if g.Prompt, cut = slices.Clone(g.Prompt[len(g.Prompt)-n:]), true; n > begin && begin > 0 {
				g.Prompt[0] = *bos
			}
		}
	}
	return cut
}

// answerLimit is the most tokens an answer may keep; 0: no limit, or no room for even one token. If the prompt may be
// cut too, the answer goes first: one token of the prompt behind its bos, begin, is enough to start from.
func answerLimit(prompt, begin int, o Options) int {
	if o.Truncate == "both" {
		prompt = min(prompt, 1+begin)
	}
	return tighter(o.MaxCompletionTokens, o.MaxTokens, prompt)
}

// promptLimit is the most tokens the prompt may keep beside the longest answer; 0: no limit, or no room at all.
func promptLimit(g Group, o Options) int {
	longest := 0
	for _, a := range g.Answers {
		longest = max(longest, len(a))
	}
	return tighter(o.MaxPromptTokens, o.MaxTokens, longest)
}

// tighter is the limit, or what whole leaves beside some other tokens, if that is less. 0 means no limit.
func tighter(limit, whole, other int) int {
	if room := max(0, whole-other); whole > 0 && (limit == 0 || room < limit) {
		return room
	}
	return limit
}
