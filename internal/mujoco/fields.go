package mujoco

import (
	"runtime"
	"unsafe"
)

// Field is an array of numbers in MuJoCo's mjData that no function of the library gives. A body's row counts the world
// as body 0.
type Field struct {
	offset uintptr // of the array's address in mjData, bytes
	width  int     // numbers of a body, 0: a number for each velocity
}

// The offsets hold for version 4.0.0 where addresses have 64 bits; scripts/federated/offsets.sh prints them.
var (
	Inertias       = Field{161008, 10} // cinert: inertia of each body about its tree's centre of mass, and mass
	Velocities     = Field{161296, 6}  // cvel: angular and linear velocity of each body
	ActuatorForces = Field{161424, 0}  // qfrc_actuator: force of the actuators on each velocity
	ContactForces  = Field{161480, 6}  // cfrc_ext: torque and force of contacts on each body, where Forces was called
	Centres        = Field{160992, 3}  // subtree_com: centre of mass of each body with all that hang on it
)

const bodies = 48 // offset of their number in mjModel

// Forces computes the forces of contacts that belong to the last step.
func (s *Simulation) Forces() {
	s.library.forces(s.model, s.data)
	runtime.KeepAlive(s)
}

// Size is how many numbers a field has.
func (s *Simulation) Size(f Field) int {
	n := s.Velocities
	if f.width > 0 {
		n = f.width * int(*at[int64](s.model + bodies))
	}
	runtime.KeepAlive(s)
	return n
}

// Read copies the first numbers of a field, as many as there is room for, and returns how many those are.
func (s *Simulation) Read(f Field, to []float64) int {
	n := copy(to, unsafe.Slice(*at[*float64](s.data + f.offset), s.Size(f)))
	runtime.KeepAlive(s)
	return n
}

// at is a place in C's memory, which Go's garbage collector does not move.
func at[T any](address uintptr) *T { return *(**T)(unsafe.Pointer(&address)) }
