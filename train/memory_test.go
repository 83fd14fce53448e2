package train

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/backend"
)

func TestAFullDeviceSaysWhatToLower(t *testing.T) {
	full := fmt.Errorf("run gradient on xla: %w: 12 bytes", backend.ErrMemory)
	err := adviseMemory(full)
	if !errors.Is(err, backend.ErrMemory) || !strings.Contains(err.Error(), "lower train.micro_batch_size") {
		t.Errorf("%v", err)
	}
	if other := errors.New("x"); adviseMemory(other) != other || adviseMemory(nil) != nil {
		t.Error("another error changed")
	}
}
