package rollout

// draw is the uniform number in [0, 1) that decides token index of a request. Counter-based: no stream to keep.
func draw(seed uint64, index int) float64 {
	return float64(mix(mix(seed)+uint64(index))>>11) / (1 << 53)
}

// mix is the finaliser of splitmix64 (Steele, Lea, Flood, 2014) on the next state: neighbours become strangers.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
