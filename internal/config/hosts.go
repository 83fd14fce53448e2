package config

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// Hosts are the names that requests may use for a server on this machine, in lower case.
type Hosts []string

// OwnHosts are this machine's names, and others.
func OwnHosts(others ...string) (h Hosts) {
	if name, err := os.Hostname(); err == nil {
		h = append(h, strings.ToLower(name), strings.ToLower(name)+".local")
	}
	for _, other := range others {
		h = append(h, strings.ToLower(other))
	}
	return h
}

// Own says whether a Host header is one that clients use for this machine: one of its names, an address or localhost. A
// site whose own name was pointed at this machine (DNS rebinding) is not: its pages would pass for the server's.
func (h Hosts) Own(header string) bool {
	host := HostOf(header)
	if _, err := netip.ParseAddr(host); err == nil || host == "" { // browsers always name a host
		return true
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || slices.Contains(h, host)
}

// HostOf returns the host of a Host header in lower case.
func HostOf(header string) string {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = strings.Trim(header, "[]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
