//go:build cgo && linux

package backend

import (
	"bytes"
	"encoding/binary"
	"sync"

	"github.com/gomlx/compute"
	onnxbackend "github.com/gomlx/compute-onnx"
)

// oneThreadConfig are session options that ONNX Runtime reads from a model where the environment variable says so:
// compute-onnx has no way to set any.
const (
	oneThreadConfig  = `{"session_options":{"intra_op_num_threads":1}}`
	configFromModel  = "ORT_LOAD_CONFIG_FROM_MODEL"
	configInMetadata = "ort_config"
)

// keeping guards the engine's flag to keep models, and the environment variable.
var keeping sync.Mutex

// compileOneThread compiles a graph and loads its model anew, to run in the thread of its caller.
func (e *onnxEngine) compileOneThread(compile func() (compute.Executable, error)) (compute.Executable, error) {
	keeping.Lock()
	defer keeping.Unlock()
	e.SetKeepModelProto(true)
	defer e.SetKeepModelProto(false)
	first, err := compile()
	if err != nil {
		return nil, err
	}
	defer first.Finalize()
	var model bytes.Buffer
	if err := onnxbackend.SaveModel(e.Backend, first, &model, nil, nil); err != nil {
		return nil, err
	}
	model.Write(metadata(configInMetadata, oneThreadConfig))
	restore := setenv(configFromModel, "1")
	defer restore()
	return onnxbackend.LoadModel(e.Backend, &model)
}

// metadata is an entry of a model's metadata as protocol buffers encode it (ModelProto's field 14 of the strings 1 and 2):
// put behind an encoded model it is part of it.
func metadata(key, value string) []byte {
	text := func(field byte, s string) []byte {
		return append(binary.AppendUvarint([]byte{field<<3 | 2}, uint64(len(s))), s...)
	}
	return text(14, string(append(text(1, key), text(2, value)...)))
}
