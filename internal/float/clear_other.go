//go:build !(goexperiment.simd && amd64)

package float

func clearUpperHalves() {}
