package backend

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"github.com/posttrain/posttrain/internal/files"
)

// Chip has the facts of a GPU that its compiler asks for, and its limits: a kernel cannot be faster.
type Chip struct {
	Name            string  `json:"name"`
	Capability      string  `json:"capability"`  // of CUDA, such as 9.0
	Accelerated     bool    `json:"accelerated"` // with the instructions of this capability alone, as sm_90a
	Multiprocessors int     `json:"multiprocessors"`
	Lanes           int     `json:"lanes"`               // of float32, of a multiprocessor
	Threads         int     `json:"threads"`             // of a multiprocessor at once
	SharedMemory    int     `json:"shared_memory"`       // of a multiprocessor, in bytes
	SharedBlock     int     `json:"shared_memory_block"` // of it, the most of a block
	L2              int     `json:"l2_cache"`            // in bytes
	Clock           float64 `json:"clock_ghz"`
	Memory          int     `json:"memory"`    // in bytes
	Bandwidth       float64 `json:"bandwidth"` // of the memory, bytes a second
	Flops16         float64 `json:"flops_16"`  // of dense products of 16 bits, a second
	Flops32         float64 `json:"flops_32"`  // of products of float32 without TF32, a second
	Link            float64 `json:"link"`      // bytes a second that a device sends to the others
	Launch          float64 `json:"launch"`    // seconds from the start of a kernel to the next one's, if it does nothing
}

//go:embed chips
var chips embed.FS

// Chips lists the chips that the program knows.
func Chips() (names []string) {
	all, _ := fs.Glob(chips, "chips/*.json")
	for _, name := range all {
		names = append(names, strings.TrimSuffix(filepath.Base(name), ".json"))
	}
	return names
}

// Device is a place of chips that are not there: for them programs are compiled, and run nowhere.
type Device struct {
	Chip
	Count, Hosts int // devices of a host, and hosts
}

// ReadDevice reads CHIP, CHIP:N for N devices, or CHIP:HxN for H hosts with N devices each. A chip is a name of [Chips], or
// a file of such facts.
func ReadDevice(text string) (d Device, err error) {
	name, places, several := strings.Cut(text, ":")
	d.Count, d.Hosts = 1, 1
	if several {
		hosts, count, both := strings.Cut(places, "x")
		if !both {
			hosts, count = "1", places
		}
		d.Hosts, err = strconv.Atoi(hosts)
		if err == nil {
			d.Count, err = strconv.Atoi(count)
		}
		if err != nil || d.Hosts < 1 || d.Count < 1 || d.Devices() > mostVirtual {
			return d, fmt.Errorf("device %q: found %q behind the chip: want a number of devices, such as 8, or of hosts and "+
				"devices, such as 2x8, at most %d in all", text, places, mostVirtual)
		}
	}
	d.Chip, err = readChip(name)
	return d, err
}

// Devices is the number of devices on all hosts.
func (d Device) Devices() int { return d.Count * d.Hosts }

func readChip(name string) (c Chip, err error) {
	text, err := fs.ReadFile(chips, "chips/"+name+".json")
	if strings.HasSuffix(name, ".json") {
		if text, err = files.Read(os.DirFS(filepath.Dir(name)), filepath.Base(name), 1<<16); err != nil {
			return c, fmt.Errorf("device %q: %w", name, err)
		}
	} else if err != nil {
		return c, fmt.Errorf("device %q: unknown chip: want %s, or a .json file of such facts", name, strings.Join(Chips(), ", "))
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, fmt.Errorf("%s: not the facts of a chip: %s", name, strings.TrimPrefix(err.Error(), "json: "))
	}
	if err := c.check(); err != nil {
		return c, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

// check wants every fact.
func (c Chip) check() error {
	v := reflect.ValueOf(c)
	for i := range v.NumField() {
		f, key := v.Field(i), v.Type().Field(i).Tag.Get("json")
		if f.Kind() == reflect.Bool {
			continue
		}
		if f.IsZero() || f.CanInt() && f.Int() < 0 || f.CanFloat() && f.Float() < 0 {
			return fmt.Errorf("%s: found %v, want a value above 0", key, f)
		}
	}
	major, minor, ok := strings.Cut(c.Capability, ".")
	if _, err := strconv.ParseUint(major+minor, 10, 16); !ok || err != nil {
		return fmt.Errorf("capability: found %q, want one such as 9.0", c.Capability)
	}
	return nil
}

// config is the text of GpuTargetConfigProto.
func (c Chip) config() string {
	major, minor, _ := strings.Cut(c.Capability, ".")
	feature := "NONE"
	if c.Accelerated {
		feature = "ACCELERATED_FEATURES"
	}
	return fmt.Sprintf(`gpu_device_info {
 threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: %d
 shared_memory_per_block: 49152 shared_memory_per_block_optin: %d shared_memory_per_core: %d
 registers_per_core_limit: 65536 registers_per_block_limit: 65536
 core_count: %d fpus_per_core: %d clock_rate_ghz: %g
 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
 thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
 memory_bandwidth: %.0f l2_cache_size: %d device_memory_size: %d device_address_bits: 64
 cuda_compute_capability { major: %s minor: %s feature_extension: %s }
 device_vendor: "NVIDIA Corporation" name: %q
 driver_version: "13.0.0" runtime_version: "12.8.0" compile_time_toolkit_version: "12.8.0" dnn_version: "9.10.0"
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
device_description_str: %q
`, c.Threads, c.SharedBlock, c.SharedMemory, c.Multiprocessors, c.Lanes, c.Clock, c.Bandwidth, c.L2, c.Memory, major,
		minor, feature, c.Name, c.Name)
}

// topology is the shape of PJRT's options: partitions, hosts and devices of a host.
func (d Device) topology() string { return fmt.Sprintf("1x%dx%d", d.Hosts, d.Count) }
