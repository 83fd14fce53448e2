package config

import (
	"fmt"
	"math"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval/privacylens"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/losses"
)

// rule says which values an option accepts.
type rule struct {
	accepts string                   // in words, after "want"
	ok      func(reflect.Value) bool // nil: every value of its type, or checked by the package that owns the option
}

// wants is the rule in words; an option without words of its own wants its type.
func (r rule) wants(t reflect.Type) string {
	if r.accepts != "" {
		return r.accepts
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[time.Duration]() {
		return "a time above 0, such as 90s or 5m"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list of texts"
	}
	return "a whole number"
}

// rules has every key of every command; a test fails where one is missing.
var rules = map[string]rule{
	"command":   {accepts: list(commands), ok: nonEmpty},
	"model":     {"embedded, or a Hugging Face model folder", nonEmpty},
	"reference": {accepts: "a Hugging Face model folder, or nothing: the model before training"},
	"backend":   {"auto, go, onnx, onnx:LIBRARY, xla, xla:cpu, xla:cuda or xla:PLUGIN", isBackend},
	"seed":      {accepts: "a whole number, 0 or more"},

	"data.train":                 {"embedded, or a .jsonl, .json or .parquet file (also .gz)", nonEmpty},
	"data.eval":                  {accepts: "a .jsonl, .json or .parquet file (also .gz)"},
	"data.eval_fraction":         number("0 or more and below 1", func(x float64) bool { return x >= 0 && x < 1 }),
	"data.score_columns":         {"two column names, the chosen answer's score and the rejected one's", twoOrNone},
	"data.reward_transform":      oneOf("auto", "none", "logistic"),
	"data.on_negative_gap":       oneOf("clamp", "drop", "swap", "error"),
	"data.loss_on":               oneOf("completion", "all"),
	"data.max_prompt_tokens":     atLeast(0),
	"data.max_completion_tokens": atLeast(0),
	"data.max_tokens":            atLeast(0),
	"data.truncate":              oneOf("none", "prompt", "completion", "both"),

	"data.scenarios":           {"a whole number, 3 or more", func(v reflect.Value) bool { return v.Int() >= 0 }},
	"data.validation_fraction": number("above 0 and below 1", func(x float64) bool { return x > 0 && x < 1 }),
	"data.test_fraction":       number("0 or more and below 1", func(x float64) bool { return x >= 0 && x < 1 }),
	"data.prompt":              oneOf(ci.PromptKinds...),
	"data.prefill":             {},

	"sampling.max_new_tokens": atLeast(1),
	"sampling.temperature":    number("above 0", func(x float64) bool { return x >= 0 }), // 0 has words of its own
	"sampling.top_k":          {"a whole number, 1 or more, or 0 (off)", func(v reflect.Value) bool { return v.Int() >= 0 }},
	"sampling.top_p":          number("above 0 and at most 1 (off), or 0 (off)", func(x float64) bool { return x >= 0 && x <= 1 }),
	"sampling.min_p":          number("0 (off) or more and below 1", func(x float64) bool { return x >= 0 && x < 1 }),
	"sampling.stop":           {}, // rollout.Sampling checks it

	"reward.format":            oneOf("paper", "strict"),
	"reward.match":             oneOf("substring", "word"),
	"reward.required_weight":   number("0 or more", func(x float64) bool { return x >= 0 }),
	"reward.restricted_weight": number("0 or more", func(x float64) bool { return x >= 0 }),

	// grpo.Options validates these itself; the words are for values of a wrong type.
	"grpo.prompts_per_step":    {accepts: "a whole number, 1 or more"},
	"grpo.group_size":          {accepts: "a whole number, 2 or more"},
	"grpo.updates_per_rollout": {accepts: "a whole number that divides grpo.prompts_per_step"},
	"grpo.std":                 {accepts: list(grpo.Stds())},
	"grpo.ratio_level":         {accepts: list(grpo.RatioLevels())},
	"grpo.aggregation":         {accepts: list(grpo.Aggregations())},
	"grpo.norm_length":         {accepts: "a whole number, 1 or more"},
	"grpo.clip_low":            {accepts: "a number above 0 and below 1"},
	"grpo.clip_high":           {accepts: "a number above 0"},
	"grpo.kl":                  {accepts: list(grpo.KLs())},
	"grpo.kl_coef":             {accepts: "a number above 0"},
	"grpo.dynamic_sampling":    {accepts: "a whole number, 0 (off) or more"},
	"grpo.mask_truncated":      {},

	"validation.every":       {"a whole number of steps, or 0 (only at the end)", func(v reflect.Value) bool { return v.Int() >= 0 }},
	"validation.temperature": number("0 (greedy) or more", func(x float64) bool { return x >= 0 }),
	"validation.samples":     atLeast(0),

	// losses.Options validates these itself; the words are for values of a wrong type.
	"loss.type":            {accepts: list(losses.Types())},
	"loss.prior":           {accepts: list(losses.Priors())},
	"loss.beta":            {accepts: "a number above 0"},
	"loss.gamma":           {accepts: "a number, 0 or more"},
	"loss.lambda":          {accepts: "a number, 0 or more"},
	"loss.label_smoothing": {accepts: "a number, 0 or more and below 0.5"},
	"loss.logps":           {accepts: "mean or sum"},
	"loss.nll":             {accepts: "mean or sum"},

	"prompts":    {accepts: "a folder of templates, or nothing: the embedded ones"},
	"data.cases": {"a file of PrivacyLens cases (main_data.json), the folder that it is in, or embedded (an example)", nonEmpty},
	"data.first": atLeast(0),

	"agent.model":          {accepts: "embedded, or a Hugging Face model folder"},
	"agent.backend":        {"auto, go, onnx, onnx:LIBRARY, xla, xla:cpu, xla:cuda or xla:PLUGIN", isBackend},
	"agent.base_url":       {"the URL of an OpenAI-compatible server, such as http://localhost:8000/v1, without a key in it", isURL},
	"agent.api_model":      {accepts: "a model's name on the server"},
	"agent.api_key_env":    variable,
	"agent.parallel":       atLeast(1),
	"agent.timeout":        {"a time above 0, such as 90s or 5m", aboveZero},
	"agent.batch":          atLeast(1),
	"agent.actions":        {accepts: "embedded, or a .csv, .jsonl, .json or .parquet file with columns name and final_action"},
	"agent.prompt":         oneOf(privacylens.Kinds...),
	"agent.prompts":        {accepts: "a .jsonl file with name, kind and prompt"},
	"agent.prefill":        {},
	"agent.temperature":    number("0 (greedy) or more", func(x float64) bool { return x >= 0 }),
	"agent.top_p":          number("above 0 and at most 1 (off), or 0 (off)", func(x float64) bool { return x >= 0 && x <= 1 }),
	"agent.top_k":          {"a whole number, 1 or more, or 0 (off)", func(v reflect.Value) bool { return v.Int() >= 0 }},
	"agent.min_p":          number("0 (off) to 1", func(x float64) bool { return x >= 0 && x <= 1 }),
	"agent.stop":           {}, // rollout.Sampling checks it
	"agent.max_new_tokens": atLeast(1),

	"judge.kind":                oneOf(JudgeModel, JudgeKeyword, JudgeReplay),
	"judge.base_url":            {"the URL of an OpenAI-compatible server, such as http://localhost:8000/v1, without a key in it", isURL},
	"judge.model":               {accepts: "a model's name on the server"},
	"judge.api_key_env":         variable,
	"judge.parallel":            atLeast(1),
	"judge.requests_per_minute": atLeast(0),
	"judge.tokens_per_minute":   atLeast(0),
	"judge.timeout":             {"a time above 0, such as 90s or 5m", aboveZero},
	"judge.retries":             atLeast(0),
	"judge.max_new_tokens":      atLeast(1),
	"judge.max_requests":        atLeast(0),
	"judge.max_cost":            number("0 (no limit) or more", func(x float64) bool { return x >= 0 }),
	"judge.prompt_price":        number("0 or more", func(x float64) bool { return x >= 0 }),
	"judge.completion_price":    number("0 or more", func(x float64) bool { return x >= 0 }),
	"judge.cache":               {accepts: "a file, or nothing: one in the run folder"},
	"judge.prompts":             {accepts: "a .jsonl file with name, kind, item, before and after"},
	"judge.allow_unparsed":      {},
	"judge.verdicts":            {accepts: "embedded, or a .json file {name: {leak_info, secret_judgment}}"},
	"judge.helpfulness":         {accepts: "embedded, a .json file {name: score}, or nothing: it was not recorded"},

	"probe.levels":         {"some of seed, vignette and trajectory", areLevels},
	"probe.max_new_tokens": atLeast(1),

	"train.epochs":                 atLeast(1),
	"train.max_steps":              atLeast(0),
	"train.batch_size":             atLeast(1),
	"train.micro_batch_size":       atLeast(0),
	"train.learning_rate":          number("above 0", func(x float64) bool { return x > 0 }),
	"train.schedule":               oneOf("constant", "linear", "cosine"),
	"train.warmup_steps":           atLeast(0),
	"train.weight_decay":           number("0 or more", func(x float64) bool { return x >= 0 }),
	"train.adam_beta1":             number("0 or more and below 1", func(x float64) bool { return x >= 0 && x < 1 }),
	"train.adam_beta2":             number("0 or more and below 1", func(x float64) bool { return x >= 0 && x < 1 }),
	"train.adam_epsilon":           number("above 0", func(x float64) bool { return x > 0 }),
	"train.max_grad_norm":          number("0 (off) or more", func(x float64) bool { return x >= 0 }),
	"train.gradient_checkpointing": {},
	"train.dtype":                  oneOf("auto", "float32", "bfloat16"),
	"train.save_dtype":             oneOf("auto", "float32", "bfloat16", "float16"),
	"train.share_prefix":           oneOf("auto", "on", "off"),
	"train.shuffle":                {},
	"train.log_every":              atLeast(1),
	"train.eval_every":             atLeast(0),
	"train.eval_metric":            {accepts: list(watched)},
	"train.checkpoint_every":       atLeast(0),
	"train.checkpoint_keep":        atLeast(1),
}

func oneOf(words ...string) rule {
	return rule{list(words), func(v reflect.Value) bool { return slices.Contains(words, v.String()) }}
}

func atLeast(least int64) rule {
	return rule{fmt.Sprintf("a whole number, %d or more", least), func(v reflect.Value) bool { return v.Int() >= least }}
}

// number accepts finite numbers of a range.
func number(accepts string, ok func(float64) bool) rule {
	return rule{"a number, " + accepts, func(v reflect.Value) bool { return ok(v.Float()) && !math.IsInf(v.Float(), 0) }}
}

func nonEmpty(v reflect.Value) bool { return v.String() != "" }

func twoOrNone(v reflect.Value) bool {
	if v.Len() == 0 {
		return true
	}
	return v.Len() == 2 && v.Index(0).String() != "" && v.Index(1).String() != ""
}

// variable accepts the name of an environment variable. A wrong one may be a key: it is not shown.
var variable = rule{"the name of an environment variable, such as OPENAI_API_KEY, not the key itself", func(v reflect.Value) bool { return IsVariable(v.String()) }}

// IsVariable tells the names of environment variables.
func IsVariable(name string) bool { return variableName.MatchString(name) }

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func aboveZero(v reflect.Value) bool { return v.Int() > 0 }

// isURL accepts where a server is, or nothing. User names and queries are where keys are put, which are not to be written to files.
func isURL(v reflect.Value) bool {
	u, err := url.Parse(v.String())
	return v.String() == "" || err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

func areLevels(v reflect.Value) bool {
	for i := range v.Len() {
		if !slices.Contains(privacylens.Levels, v.Index(i).String()) {
			return false
		}
	}
	return v.Len() > 0
}

func isBackend(v reflect.Value) bool {
	engine, detail, has := strings.Cut(v.String(), ":")
	switch engine {
	case "auto", "go":
		return !has
	case "onnx", "xla":
		return !has || detail != ""
	}
	return false
}
