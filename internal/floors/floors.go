// Package floors tests who may import whom, and how many lines each may have: its table names every package with its
// floor. An import that breaks the table is a fault with file, line and reason. It draws docs/floors.svg, too.
package floors
