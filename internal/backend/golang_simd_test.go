//go:build goexperiment.simd && amd64

package backend

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"k8s.io/klog/v2"
)

// TestLargeProducts: the variable is the library's, which says in its log what kernels it takes for a product.
func TestLargeProducts(t *testing.T) {
	e := openTestGo(t)
	defer func(chosen bool) { largeProducts = chosen }(largeProducts)
	var log bytes.Buffer
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	flags.Set("logtostderr", "false")
	flags.Set("v", "1")
	klog.SetOutput(&log)
	defer func() {
		klog.SetOutput(os.Stderr)
		flags.Set("v", "0")
		flags.Set("logtostderr", "true")
	}()
	for large, want := range map[bool]string{true: "Using large variant", false: "Using small variant"} {
		log.Reset()
		largeProducts = large
		p, err := e.Compile("product", func(g *graph.Graph) []*graph.Node {
			x := graph.Const(g, [][]int32{{1, 2}, {3, 4}})
			return []*graph.Node{graph.MatMul(x, x)}
		})
		expect.OK(t, err)
		expect.Must(p.Run(nil, nil))(t)
		p.Close()
		if klog.Flush(); !strings.Contains(log.String(), want) {
			t.Errorf("%v: %s, want %q", large, log.String(), want)
		}
	}
}
