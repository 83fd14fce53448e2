package reward

import "testing"

func TestThink(t *testing.T) {
	for _, c := range []struct {
		completion string
		prefilled  bool
		want       string
		ok         bool
	}{
		{"<think> a b </think><answer>c</answer>", false, "a b", true},
		{"hm <think>a</think> <think>b</think>", false, "a", true},
		{"a</think><answer>c</answer>", true, "a", true},
		{"<think>\na</think>", true, "a", true}, // opened once more
		{"a</think> so <think>b</think>", true, "a", true},
		{"<think>a<answer>c</answer>", false, "a", true}, // never closed
		{"<think>a", false, "a", true},
		{"a", true, "a", true},
		{"a</think><answer>c</answer>", false, "", false}, // never opened
		{"<answer>c</answer>", false, "", false},
		{"", true, "", true},
	} {
		if got, ok := Think(c.completion, c.prefilled); got != c.want || ok != c.ok {
			t.Errorf("%q, prefilled %v: %q, %v, want %q, %v", c.completion, c.prefilled, got, ok, c.want, c.ok)
		}
	}
}

func TestFind(t *testing.T) {
	got := Find([]string{"LEVOPAM", "4", ""}, "she takes Levopam in 2024", word)
	if len(got) != 2 || got[0].At != 10 || got[1].At != -1 {
		t.Errorf("%v", got)
	}
	if got := Find([]string{"4"}, "in 2024", paper); got[0].At != 6 {
		t.Errorf("substring: %v", got)
	}
}
