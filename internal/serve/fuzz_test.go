package serve

import "testing"

// FuzzAsks: whatever a client sends is a request or a problem.
func FuzzAsks(f *testing.F) {
	for _, body := range []string{
		`{"messages":[{"role":"user","content":"a"}],"n":2,"stop":["b"],"logprobs":true,"seed":-1}`,
		`{"prompt":[1,2],"logprobs":0,"stop_token_ids":[3],"return_token_ids":true,"temperature":0}`,
		`{"prompt":"a","stream":false,"best_of":1}`, `{"prompt":null}`, `[]`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, read := range []func([]byte) (*ask, *problem){readAsk, readPlainAsk} {
			a, p := read(body)
			if p == nil && (a.n < 1 || a.n > mostChoices || a.MaxNew < 0 || a.plain == nil && len(a.messages) == 0) {
				t.Errorf("%s: %+v", body, a)
			}
		}
	})
}
