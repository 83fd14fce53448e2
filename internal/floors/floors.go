// Package floors tests who may import whom: its table names every package with its floor. An import that breaks the
// table is a fault with file, line and reason. The test draws docs/floors.svg from the table and the imports, too.
package floors
