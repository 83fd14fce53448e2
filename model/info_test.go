package model

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

func TestInfo(t *testing.T) {
	m := tiny(t, "qwen2", "use_sliding_window", true, "sliding_window", 5, "max_window_layers", 1)
	dir := t.TempDir()
	expect.OK(t, m.Save(dir, "bfloat16"))
	info := expect.Must(DescribeFS(os.DirFS(dir), dir))(t)
	want := 0
	for _, p := range m.Params {
		want += len(p.Data)
	}
	if info.Parameters != want || info.Bytes != int64(2*want) || m.Config.ParamCount() != want {
		t.Errorf("%d parameters in %d bytes, want %d", info.Parameters, info.Bytes, want)
	}
	var b bytes.Buffer
	expect.OK(t, info.Write(&b))
	for _, want := range []string{
		"qwen2: 3 layers, hidden 16, mlp 24, 4 heads (2 key/value) of 4, vocabulary 64, 128 positions",
		"sliding window 5 in 2 of 3 layers, head of its own", "stored as BF16", "model.layers.*.self_attn.q_proj.bias",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("want %q in\n%s", want, &b)
		}
	}
}
